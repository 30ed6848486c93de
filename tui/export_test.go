package tui

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

func TestEncode(t *testing.T) {
	t.Parallel()
	table := table{
		columns: []string{"replica", "title"},
		rows:    [][]string{{"a", "x, \"y\" | z\nnew <b>"}, {"bb"}, {"c", "d", "more than there are columns"}},
	}
	got := map[string]string{}
	for _, f := range formats {
		got[f.name] = string(f.encode(table))
	}
	var objects []map[string]string
	if err := json.Unmarshal([]byte(got["json"]), &objects); err != nil || len(objects) != 3 || objects[0]["title"] != table.rows[0][1] {
		t.Errorf("json: %v %v", objects, err)
	}
	if i, j := strings.Index(got["json"], `"replica"`), strings.Index(got["json"], `"title"`); i > j {
		t.Error("json: columns out of order")
	}
	rows, err := csv.NewReader(strings.NewReader(got["csv"])).ReadAll()
	if err != nil || len(rows) != 4 || rows[1][1] != table.rows[0][1] {
		t.Errorf("csv: %q %v", rows, err)
	}
	if want := "| replica | title |\n| --- | --- |\n| a | x, \"y\" \\| z new <b> |\n| bb |  |\n| c | d |\n"; got["md"] != want {
		t.Errorf("md: %q, want %q", got["md"], want)
	}
	if want := "replica  title\na        x, \"y\" | z new <b>\nbb\nc        d\n"; got["txt"] != want {
		t.Errorf("txt: %q, want %q", got["txt"], want)
	}
	for _, f := range formats {
		f.encode(table2())
	}
}

func table2() table { return table{} }

// TestExport writes what the screen shows: filtered, sorted, with its columns.
func TestExport(t *testing.T) {
	t.Parallel()
	x := newHarness(t, "d_restart", 100, 30, noColour)
	x.press("/").write("!exact").press("enter", "x", "c")
	const name = "kvscope-fleet-20261130T041928Z.csv"
	rows, err := csv.NewReader(strings.NewReader(x.files[name])).ReadAll()
	if err != nil || len(rows) != 3 || rows[1][0] != "b" || rows[2][0] != "a" {
		t.Errorf("%v: %q, %v", x.files, rows, err)
	}
	if s := x.text(); !strings.Contains(s, "wrote 2 rows of fleet to "+name) {
		t.Error(s)
	}
	x.press(":").write("export pdf").press("enter")
	if s := x.text(); !strings.Contains(s, `no format "pdf"`) {
		t.Error(s)
	}
	x.m.opt.WriteFile = func(string, []byte) (string, error) { return "", errors.New("disk full") }
	x.press(":").write("export md").press("enter")
	if s := x.text(); !strings.Contains(s, "export failed: disk full") {
		t.Error(s)
	}
}
