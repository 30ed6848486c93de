package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvscope/kvscope/doctor"
	"github.com/kvscope/kvscope/fleet"
	"github.com/kvscope/kvscope/tap"
	"github.com/kvscope/kvscope/wire"
)

func newDoctor() *cobra.Command {
	var live liveFlags
	var wait time.Duration
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Look at every replica once, and say what is wrong with the fix; exit code 1 on errors",
		Long: `doctor looks at every replica of the fleet before its events are relied on:
whether it can be reached, publishes, answers replays, and agrees with the
others.

It subscribes, reads each metrics page twice, and asks each replay socket once,
for what comes after the highest number there is: the engine answers that with
its end marker and reads nothing of its buffer. --replay never leaves that out.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if wait < time.Second || wait > time.Hour {
				return usageError("--for %s: give 1s to 1h", wait)
			}
			cfg, err := live.config(cmd, os.Getenv)
			if err != nil {
				return err
			}
			if cfg.empty() {
				return usageError("%w", errNoFleet)
			}
			members, err := findMembers(cmd.Context(), cfg)
			if len(members) == 0 && err != nil {
				return inputError(err)
			}
			report := doctor.Run(cmd.Context(), members, doctor.Options{
				Tap: tap.Options{Replay: tap.ReplayOptions{Policy: cfg.Replay}}, Get: getPage, Wait: wait,
			})
			if cmd.Context().Err() != nil {
				return cmd.Context().Err()
			}
			if err != nil {
				err = inputError(err)
			}
			write := doctor.Text
			if asJSON {
				write = doctor.JSON
			}
			if err := first(write(cmd.OutOrStdout(), &report), err); err != nil {
				return err
			}
			if report.Count(doctor.Error) > 0 {
				return &exitError{code: exitFindings}
			}
			return nil
		},
	}
	live.add(cmd)
	cmd.Flags().DurationVar(&wait, "for", 10*time.Second, "how long to listen for events of a replica that gives none")
	cmd.Flags().BoolVar(&asJSON, "json", false, "write JSON")
	return cmd
}

// findMembers finds the fleet. Members beside an error were found all the same.
var findMembers = func(_ context.Context, cfg liveConfig) ([]fleet.Member, error) {
	var members []fleet.Member
	for i := range cfg.Fleet.Replicas {
		members = append(members, fixedMembers(&cfg.Fleet.Replicas[i])...)
	}
	if len(members) == 0 {
		return nil, errors.New("only replicas at fixed addresses can be looked at: give --replica")
	}
	return members, nil
}

// fixedMembers gives a member for each rank of a replica.
func fixedMembers(r *fleet.Replica) []fleet.Member {
	var members []fleet.Member
	for rank := range max(1, r.Ranks) {
		m := fleet.Member{
			Name: wire.Replica(firstOf(r.Name, strings.TrimPrefix(r.Events, "tcp://"), r.Engine)), Bind: r.Bind, Topics: r.Topics,
			Metrics: r.Metrics, Rank: -1, User: r.User, Password: r.Password, Found: "fixed address",
		}
		if r.Ranks > 1 {
			m.Name += wire.Replica("/" + strconv.Itoa(rank))
			m.Rank = rank
		}
		if m.Metrics == "" && r.Engine != "" {
			m.Metrics = strings.TrimSuffix(r.Engine, "/") + "/metrics"
		}
		var err, replayErr error
		m.Events, err = ofRank(r.Events, rank)
		m.Replay, replayErr = ofRank(r.Replay, rank)
		if err = errors.Join(err, replayErr); err != nil {
			m.Problem, m.Events, m.Replay = err.Error(), "", ""
		}
		members = append(members, m)
	}
	return members
}

// ofRank gives the address of a data-parallel rank: engines add it to the port.
func ofRank(address string, rank int) (string, error) {
	if address == "" || rank == 0 {
		return address, nil
	}
	rest, ok := strings.CutPrefix(address, "tcp://")
	host, digits, err := net.SplitHostPort(rest)
	if !ok || err != nil {
		return "", fmt.Errorf("rank %d: %s has no port to add a rank to: give tcp://host:port", rank, address)
	}
	port, err := strconv.Atoi(digits)
	if err != nil || port+rank > 65535 {
		return "", fmt.Errorf("rank %d: port %s + %d is above 65535: give the engine a lower port", rank, digits, rank)
	}
	return "tcp://" + net.JoinHostPort(host, strconv.Itoa(port+rank)), nil
}

// pageTimeout bounds one GET.
const pageTimeout = 3 * time.Second

// pageClient uses no proxy: engines are reached directly, as their sockets are.
var pageClient = &http.Client{
	Transport:     &http.Transport{DisableKeepAlives: true, MaxResponseHeaderBytes: 64 << 10},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// getPage GETs a metrics page.
func getPage(ctx context.Context, url string) (doctor.Page, error) {
	ctx, cancel := context.WithTimeout(ctx, pageTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return doctor.Page{}, errors.New("not a URL: give http://host:port/metrics")
	}
	page := doctor.Page{Sent: wire.Time(time.Now().UnixNano())}
	resp, err := pageClient.Do(req)
	if err != nil {
		return page, err // it names the URL, without a password
	}
	defer resp.Body.Close() // read as far as it is wanted
	page.Body, err = io.ReadAll(io.LimitReader(resp.Body, fleet.MaxPage+1))
	page.Received = wire.Time(time.Now().UnixNano())
	if date, dateErr := http.ParseTime(resp.Header.Get("Date")); dateErr == nil {
		page.Date, _ = wire.TimeOf(float64(date.Unix()))
	}
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s: %s", req.URL.Redacted(), resp.Status)
	}
	return page, err
}
