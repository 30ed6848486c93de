package report

import (
	"io"

	"github.com/kvscope/kvscope/explain/diff"
	"github.com/kvscope/kvscope/prompt"
)

// DiffSchema is that of DiffJSON.
const DiffSchema = "kvscope.diff/1"

// jsonDiff is what parts two prompts. Messages, blocks and tokens count from 0;
// numbers of tokens and blocks are null where a prompt has no tokens, bytes and
// message where there is no text or no message.
type jsonDiff struct {
	Relation  string    `json:"relation"`
	Summary   string    `json:"summary"`
	BlockSize int       `json:"block_size"`
	Token     *int      `json:"token"`
	Block     *int      `json:"block"`
	A         jsonPlace `json:"a"`
	B         jsonPlace `json:"b"`
	// Spans are the first of them, and More are left.
	Spans []jsonSpan `json:"spans"`
	More  int        `json:"more_spans"`
	Reuse *jsonReuse `json:"reusable_blocks"`
	Lost  *int       `json:"blocks_lost"`
	// Namespace names what keeps them from sharing any block: "cache salt", "LoRA".
	Namespace string   `json:"namespace"`
	NeedsText bool     `json:"needs_tokenizer"`
	Notes     []string `json:"notes"`
}

type jsonPlace struct {
	jsonWhere
	Byte   *int   `json:"byte"`
	Before string `json:"before"`
	After  string `json:"after"`
}

type jsonWhere struct {
	Message *int   `json:"message"`
	Role    string `json:"role"`
	Part    string `json:"part"`
}

type jsonSpan struct {
	Class  string `json:"class"`
	Detail string `json:"detail"`
	Kind   string `json:"kind"`
	// ResizedBy is how many tokens B has more, negative for fewer.
	ResizedBy int    `json:"resized_by"`
	Remedy    string `json:"remedy"`
	// Remedied says that the reuse figures are with this remedy.
	Remedied bool       `json:"remedied"`
	Last     bool       `json:"last"`
	A        jsonExtent `json:"a"`
	B        jsonExtent `json:"b"`
}

type jsonExtent struct {
	jsonWhere
	FromToken int    `json:"from_token"`
	ToToken   int    `json:"to_token"`
	FromByte  *int   `json:"from_byte"`
	ToByte    *int   `json:"to_byte"`
	Text      string `json:"text"`
}

// jsonReuse counts full blocks that both can share: now, with the spans moved last
// or written in one form, and with them removed.
type jsonReuse struct {
	Now     int `json:"now"`
	Moved   int `json:"moved"`
	Removed int `json:"removed"`
	// Exact says that the changed prompts were tokenized anew.
	Exact bool `json:"retokenized"`
}

// DiffJSON writes what parts two prompts as kvscope.diff/1.
func DiffJSON(w io.Writer, d *diff.Diff, a, b *prompt.Prompt) error {
	type side struct {
		Tokens   int      `json:"tokens"`
		Bytes    int      `json:"bytes"`
		Template string   `json:"template"`
		Encoder  string   `json:"tokenizer"`
		Notes    []string `json:"notes"`
	}
	sideOf := func(p *prompt.Prompt) side {
		return side{len(p.Tokens), len(p.Text), p.Template, p.Encoder, full(p.Notes)}
	}
	return write(w, struct {
		Schema  string  `json:"schema"`
		Prompts [2]side `json:"prompts"`
		jsonDiff
	}{DiffSchema, [2]side{sideOf(a), sideOf(b)}, *diffJSON(d)})
}

func diffJSON(d *diff.Diff) *jsonDiff {
	j := &jsonDiff{
		Relation: d.Relation.String(), Summary: d.Summary("A", "B"), BlockSize: d.BlockSize, A: placeJSON(&d.A), B: placeJSON(&d.B),
		Spans: []jsonSpan{}, More: d.More, Namespace: d.Namespace, NeedsText: d.NeedsText, Notes: full(d.Notes),
	}
	if d.HasTokens {
		r := d.Reuse
		j.Token, j.Block, j.Lost = &d.Common, &d.Block, &r.Lost
		j.Reuse = &jsonReuse{r.Now, r.Moved, r.Removed, r.Retokenized}
	}
	for i := range d.Spans {
		s := &d.Spans[i]
		j.Spans = append(j.Spans, jsonSpan{
			s.Class.String(), s.Detail, s.Kind.String(), s.Grows, s.Remedy.String(), s.Remedied, s.Last, extentJSON(&s.A), extentJSON(&s.B),
		})
	}
	return j
}

func whereJSON(w diff.Where) jsonWhere {
	return jsonWhere{known(w.Message), w.Role, w.Part.String()}
}

func placeJSON(p *diff.Place) jsonPlace {
	return jsonPlace{whereJSON(p.Where), known(p.Byte), p.Before, p.After}
}

func extentJSON(e *diff.Extent) jsonExtent {
	return jsonExtent{whereJSON(e.Where), e.Start, e.End, known(e.From), known(e.To), e.Text}
}

// known is a number that is not -1.
func known(n int) *int {
	if n < 0 {
		return nil
	}
	return &n
}
