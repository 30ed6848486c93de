package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

type soak struct {
	replicas, rate  int
	duration, step  time.Duration
	python, kvscope string
	addresses       []string
}

// child is a process of ours that is talked to in lines.
type child struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func start(name string, args ...string) (*child, error) {
	c := &child{cmd: exec.Command(name, args...)}
	c.cmd.Stderr = os.Stderr
	in, err := c.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.in, c.out = in, bufio.NewReader(out)
	return c, c.cmd.Start()
}

func (c *child) say(line string) error {
	_, err := io.WriteString(c.in, line+"\n")
	return err
}

func (c *child) hear(v any) error {
	line, err := c.out.ReadBytes('\n')
	if err != nil {
		return err
	}
	return json.Unmarshal(line, v)
}

func (c *child) ask(line string) (report, error) {
	var r report
	if err := c.say(line); err != nil {
		return r, err
	}
	return r, c.hear(&r)
}

// end closes the input, which ends our children, and waits.
func (c *child) end() {
	_ = c.in.Close()
	_ = c.cmd.Wait()
}

func (s *soak) run(search bool) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	pub, err := start(self, "-role", "publish", "-replicas", fmt.Sprint(s.replicas))
	if err != nil {
		return err
	}
	defer pub.end()
	var hello outcome
	if err := pub.hear(&hello); err != nil {
		return fmt.Errorf("the publishers: %w", err)
	}
	s.addresses = hello.Addresses
	done, failed := s.long(self, pub)
	if done.Published == nil || !search {
		return failed
	}
	return errors.Join(failed, s.search(self, pub, done))
}

// listener starts a process that listens to all replicas.
func (s *soak) listener(name string, args ...string) (*child, error) {
	c, err := start(name, args...)
	if err != nil {
		return nil, err
	}
	if err := c.say(strings.Join(s.addresses, " ")); err != nil {
		return nil, err
	}
	return c, nil
}

// ready waits until each replica has that many subscribers.
func (s *soak) ready(pub *child, subscribers int) error {
	if err := pub.say(encode(order{Subscribers: subscribers})); err != nil {
		return err
	}
	var done outcome
	if err := pub.hear(&done); err != nil {
		return fmt.Errorf("the publishers, waiting for %d subscribers each: %w", subscribers, err)
	}
	return nil
}

// long is the soak itself. It gives what was published.
func (s *soak) long(self string, pub *child) (outcome, error) {
	var done outcome
	listeners := map[string]*child{}
	for _, l := range s.peers(self) {
		c, err := s.listener(l.command[0], l.command[1:]...)
		if err != nil {
			return done, fmt.Errorf("%s: %w", l.name, err)
		}
		defer c.end()
		listeners[l.name] = c
	}
	rec, file, err := s.recorder()
	if err != nil {
		return done, err
	}
	defer os.RemoveAll(filepath.Dir(file))
	defer func() { _ = rec.Process.Kill() }() // it ended long before, if all went well
	fmt.Printf("%d replicas, %d batches a second, %s\n", s.replicas, s.rate, s.duration)
	all := len(listeners) + 1 // and the recorder
	if err := s.ready(pub, all); err != nil {
		return done, err
	}
	if err := pub.say(encode(order{Subscribers: all, Rate: s.rate, Seconds: s.duration.Seconds()})); err != nil {
		return done, err
	}
	if err := s.watch(listeners, rec); err != nil {
		return done, err
	}
	if err := pub.hear(&done); err != nil {
		return done, err
	}
	published := sum(done.Published)
	fmt.Printf("published %d batches, %.2f s later than ordered; the publishers dropped %d\n", published, done.Behind, done.Dropped)
	var failed []error
	for name, c := range listeners {
		_ = waitFor("the rest", caughtUp, func() bool { r, err := c.ask("count"); return err != nil || r.Messages >= published })
		r, err := c.ask("all")
		if err != nil {
			return done, fmt.Errorf("%s: %w", name, err)
		}
		fmt.Printf("%-16s %d received, %d lost, %d dropped by it, %.1f us of processor a message, %d MB resident\n",
			name, r.Messages, int64(published)-int64(r.Messages), r.Dropped, 1e6*r.CPU/float64(r.Messages), r.RSS>>20)
		if r.Messages != published {
			failed = append(failed, fmt.Errorf("%s lost batches", name))
		}
		failed = append(failed, s.checkIndex(name, r, done.Published)...)
	}
	failed = append(failed, s.checkCapture(file))
	return done, errors.Join(failed...)
}

// peers are those who listen at the same time.
func (s *soak) peers(self string) []struct {
	name    string
	command []string
} {
	type peerOf = struct {
		name    string
		command []string
	}
	out := []peerOf{
		{"tap and index", []string{self, "-role", "tap"}},
		{"tap", []string{self, "-role", "tap", "-index=false"}},
	}
	if s.python != "" {
		out = append(out, peerOf{"pyzmq", []string{s.python, "-c", peer}})
	}
	return out
}

// watch prints how memory goes while the soak runs, and kills the recorder in
// the midst. Warm-up is the first third.
func (s *soak) watch(listeners map[string]*child, rec *exec.Cmd) error {
	began := time.Now()
	killed := false
	var warm, last uint64
	for every := max(s.duration/10, second); time.Since(began) < s.duration; {
		time.Sleep(every)
		r, err := listeners["tap and index"].ask("count")
		if err != nil {
			return err
		}
		fmt.Printf("  %4.0f s: %d messages, heap %d MB, resident %d MB\n", time.Since(began).Seconds(), r.Messages, r.Heap>>20, r.RSS>>20)
		if last = r.RSS; time.Since(began) > s.duration/3 && warm == 0 {
			warm = r.RSS
		}
		if !killed && time.Since(began) > s.duration/2 {
			killed = true
			if err := rec.Process.Kill(); err != nil {
				return fmt.Errorf("the recorder: %w", err)
			}
			_ = rec.Wait()
		}
	}
	fmt.Printf("resident memory after warm-up %d MB, at the end %d MB\n", warm>>20, last>>20)
	if s.duration < 2*time.Minute {
		return nil // too short for the index and the collector to have warmed up
	}
	if last > warm+warm/4+16<<20 {
		return fmt.Errorf("memory grows: %d MB after warm-up, %d MB at the end", warm>>20, last>>20)
	}
	return nil
}

// recorder starts kvscope record on all replicas.
func (s *soak) recorder() (*exec.Cmd, string, error) {
	dir, err := os.MkdirTemp("", "soak")
	if err != nil {
		return nil, "", err
	}
	file := filepath.Join(dir, "soak.kvcap")
	args := []string{"record", "-o", file}
	for i, a := range s.addresses {
		args = append(args, "--replica", string(name(i))+"="+a)
	}
	cmd := exec.Command(s.kvscope, args...)
	cmd.Env = append(os.Environ(), "XDG_CONFIG_HOME="+dir)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, "", fmt.Errorf("%s record: %w", s.kvscope, err)
	}
	return cmd, file, nil
}

// checkIndex holds what an index says against what was published.
func (s *soak) checkIndex(who string, r report, published []uint64) []error {
	var failed []error
	slices.SortFunc(r.Replicas, func(a, b replicaReport) int { return strings.Compare(a.Replica, b.Replica) })
	for i, x := range r.Replicas {
		c, err := newCycle(i)
		if err != nil {
			return []error{err}
		}
		want := replicaReport{Replica: string(name(i)), Trust: "EXACT", Last: published[i] - 1, Resident: c.holds(published[i]), Batches: published[i]}
		if x != want {
			failed = append(failed, fmt.Errorf("%s: %+v, want %+v", who, x, want))
		}
	}
	if n := len(r.Replicas); n > 0 && len(failed) == 0 {
		fmt.Printf("%-16s all %d replicas EXACT, their resident blocks as the engines'\n", who, n)
	}
	return failed
}

// checkCapture opens the capture of the recorder that was killed: its report
// must be that of a fleet of which nothing is missing, up to where it ends.
func (s *soak) checkCapture(file string) error {
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	if info.Mode().Perm() != 0o600 {
		return fmt.Errorf("the capture's mode is %o", info.Mode().Perm())
	}
	out, err := exec.Command(s.kvscope, "report", "--from", file, "--json").Output()
	exit := (*exec.ExitError)(nil)
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 3) { // 3: it ends without a seek table
		return fmt.Errorf("the report of the capture: %w", err)
	}
	var got struct {
		Damage   string
		Replicas []struct {
			Replica string
			Trust   string
			Last    *uint64 `json:"last_seq"`
			First   *uint64 `json:"first_seq"`
			Batches uint64
			Gaps    []any
			Blocks  struct{ Device int }
		}
	}
	if err := json.Unmarshal(out, &got); err != nil {
		return err
	}
	var batches uint64
	for _, r := range got.Replicas {
		var i int
		if _, err := fmt.Sscanf(r.Replica, "r%d", &i); err != nil || r.Last == nil {
			return fmt.Errorf("the capture: %s has no batch", r.Replica)
		}
		c, err := newCycle(i)
		if err != nil {
			return err
		}
		n := *r.Last + 1
		batches += n
		if r.Trust != "EXACT" || *r.First != 0 || r.Batches != n || len(r.Gaps) > 0 || r.Blocks.Device != c.holds(n) {
			return fmt.Errorf("the capture: %+v, and %d batches leave %d blocks", r, n, c.holds(n))
		}
	}
	if len(got.Replicas) != s.replicas {
		return fmt.Errorf("the capture holds %d replicas", len(got.Replicas))
	}
	fmt.Printf("%-16s killed, %d MB, opens: %d batches, all replicas EXACT, their resident blocks as the engines' (%s)\n",
		"record", info.Size()>>20, batches, got.Damage)
	return nil
}

// search looks for the highest rate at which each listener alone loses nothing.
func (s *soak) search(self string, pub *child, done outcome) error {
	rates := []int{s.rate, 10_000, 20_000, 30_000, 40_000, 60_000, 80_000, 120_000, 160_000}
	rates = slices.Compact(slices.Sorted(slices.Values(rates)))
	fmt.Printf("the highest rate without loss, %s each, one listener at a time on this machine:\n", s.step)
	for _, l := range s.peers(self) {
		best, micros, why := 0, 0.0, "the highest rate tried"
		for _, rate := range rates {
			if err := s.ready(pub, 0); err != nil {
				return err
			}
			c, err := s.listener(l.command[0], l.command[1:]...)
			if err != nil {
				return err
			}
			if err := s.ready(pub, 1); err != nil {
				return err
			}
			before, err := c.ask("count")
			if err != nil {
				return err
			}
			was := done
			done = outcome{} // the old one is still needed
			if err := pub.say(encode(order{Subscribers: 1, Rate: rate, Seconds: s.step.Seconds()})); err != nil {
				return err
			}
			if err := pub.hear(&done); err != nil {
				return err
			}
			want := sum(done.Published) - sum(was.Published)
			var r report
			_ = waitFor("the rest", 3*second, func() bool { r, err = c.ask("count"); return err != nil || r.Messages-before.Messages >= want })
			c.end()
			switch {
			case err != nil:
				return err
			case done.Behind > s.step.Seconds()/20:
				why = fmt.Sprintf("the publishers cannot make %d", rate)
			case r.Messages-before.Messages < want:
				why = fmt.Sprintf("at %d it lost, or was behind by, %d of %d", rate, want-(r.Messages-before.Messages), want)
			default:
				best, micros = rate, 1e6*(r.CPU-before.CPU)/float64(want)
				continue
			}
			break
		}
		fmt.Printf("%-16s %6d batches a second, %.1f us of processor each; %s\n", l.name, best, micros, why)
	}
	return nil
}

func encode(o order) string {
	b, err := json.Marshal(o)
	if err != nil {
		panic(err) // numbers cannot fail
	}
	return string(b)
}

func sum(n []uint64) uint64 {
	var total uint64
	for _, x := range n {
		total += x
	}
	return total
}
