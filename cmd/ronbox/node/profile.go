package node

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"ronbox/cmd/ronbox/cli"
	nodeapi "ronbox/httpapi/wire/node"
)

// recording is a profile or a trace to fetch.
type recording struct {
	name    string
	seconds int
	out     string
	ending  string // of the file's name
	upTo    string // "up to " if the node may need less time
}

const maxRecording = 300 // seconds; the node's own limit

func (a app) pprofCmd() *cobra.Command {
	names := []string{"heap", "allocs", "goroutine", "block", "mutex", "threadcreate", "profile"}
	r := recording{ending: ".pb.gz"}
	cmd := &cobra.Command{
		Use:   "pprof NAME",
		Short: "Fetch a profile of the running node for `go tool pprof`",
		Long: `Fetch a profile of the running node over its socket, for ` + "`go tool pprof`" + `. NAME is one of
` + strings.Join(names, ", ") + `; "profile" is a
CPU profile over --seconds. Goroutines are labelled with their task.`,
		Example: `  ronbox debug pprof heap && go tool pprof -http :0 ronbox-heap-*.pb.gz
  ronbox debug pprof profile --seconds 10 --out cpu.pb.gz
  ronbox debug pprof goroutine --out - > goroutines.pb.gz`,
		Args:      cli.Exactly(1, "the name of one profile: "+strings.Join(names, ", ")),
		ValidArgs: names,
	}
	a.recordingFlags(cmd, &r, "record profile, block and mutex for `N` seconds")
	cmd.RunE = a.online(func(ctx context.Context, c nodeapi.Client, args []string) error {
		if r.name = args[0]; !slices.Contains(names, r.name) {
			return cli.Usage("%q is not a profile: want %s", r.name, strings.Join(names, ", "))
		}
		if r.seconds == 0 && r.name == "profile" {
			r.seconds = 10
		}
		return a.record(ctx, c, r)
	})
	return cmd
}

func (a app) traceCmd() *cobra.Command {
	r := recording{name: "trace", ending: ".trace"}
	cmd := &cobra.Command{
		Use:   "trace",
		Short: "Record an execution trace of the running node for `go tool trace`",
		Long: `Record an execution trace of the running node for ` + "`go tool trace`" + `: goroutines, system
calls and garbage collections. Recording costs a few percent of the node's performance.
Use ` + "`ronbox debug flight`" + ` to see the seconds before a problem.`,
		Example: `  ronbox debug trace --seconds 3 && go tool trace ronbox-trace-*.trace
  ronbox debug trace --seconds 1 --out t.trace --json`,
	}
	a.recordingFlags(cmd, &r, "record for `N` seconds")
	cmd.RunE = a.online(func(ctx context.Context, c nodeapi.Client, _ []string) error {
		r.seconds = cmp.Or(r.seconds, 5)
		return a.record(ctx, c, r)
	})
	return cmd
}

func (a app) flightCmd() *cobra.Command {
	r := recording{name: "flight", ending: ".trace", upTo: "up to "}
	cmd := &cobra.Command{
		Use:   "flight",
		Short: "Fetch the node's flight recorder, a trace of the last seconds",
		Long: `Fetch the node's flight recorder for ` + "`go tool trace`" + `: an execution trace of the last five
seconds. The recorder costs a busy node a tenth of its performance, so it runs only while
commits are slow: it starts when a commit takes 250 ms and stops a minute after the last
one. The node saves the trace when a commit takes over two seconds. If the recorder is not
running, this command starts it and returns after --seconds.`,
		Example: `  ronbox debug flight && go tool trace ronbox-flight-*.trace
  ronbox debug flight --seconds 1 --out f.trace --json`,
	}
	a.recordingFlags(cmd, &r, "record for `N` seconds if the recorder is not running (default 5)")
	cmd.RunE = a.online(func(ctx context.Context, c nodeapi.Client, _ []string) error {
		r.seconds = cmp.Or(r.seconds, 5)
		return a.record(ctx, c, r)
	})
	return cmd
}

func (a app) recordingFlags(cmd *cobra.Command, r *recording, seconds string) {
	cmd.Flags().IntVar(&r.seconds, "seconds", 0, seconds+fmt.Sprintf(", up to %d", maxRecording))
	cmd.Flags().
		StringVar(&r.out, "out", "",
			"write to this new `file`, or - for stdout (default a new file in the current directory)")
}

// recordDoc is the output of pprof, trace and flight.
type recordDoc struct {
	Name  string `json:"name"`
	File  string `json:"file"`
	Bytes int64  `json:"bytes"`
}

func (a app) record(ctx context.Context, c nodeapi.Client, r recording) error {
	if r.seconds < 0 || r.seconds > maxRecording {
		return cli.Usage("--seconds %d: want 1..%d", r.seconds, maxRecording)
	}
	if a.URLs() != nil {
		return cli.Usage(
			"recordings are available only over the node's socket: use --data-dir or --socket instead of --url",
		)
	}
	fetch := func(w io.Writer) error { return c.Profile(ctx, r.name, time.Duration(r.seconds)*time.Second, w) }
	if r.out == "-" {
		if a.Flags.JSON || cli.IsTerminal(a.Stdout) {
			return cli.Usage("--out -: a profile is binary; lead it into a file or a pipe, without --json")
		}
		return fetch(a.Stdout)
	}
	doc := recordDoc{
		Name: r.name,
		File: cmp.Or(r.out, "ronbox-"+r.name+"-"+a.Now().UTC().Format("20060102T150405Z")+r.ending),
	}
	if r.seconds > 1 {
		a.Say("recording for %s%d s", r.upTo, r.seconds)
	}
	var err error
	if doc.Bytes, err = cli.ProduceFile(doc.File, 0o600, fetch); err != nil {
		return err
	}
	return a.Show(doc, func(t cli.Table) {
		t.Row("written", doc.File)
		t.Row("size", cli.Bytes(doc.Bytes))
	})
}
