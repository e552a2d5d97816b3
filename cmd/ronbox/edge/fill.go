package edge

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"ronbox/appliance/flow"
	"ronbox/cmd/ronbox/cli"
	edgeapi "ronbox/httpapi/edge"
	"ronbox/httpapi/wire"
)

const (
	fillTimeout = 200 * time.Second // a little longer than the node tries
	sideBySide  = 8                 // fills of a list: as many as a node has workers
	maxList     = 16 << 20          // bytes of a list
)

func (a app) fillCmd() *cobra.Command {
	var list string
	var one edgeapi.Fill
	cmd := &cobra.Command{
		Use:   "fill URL",
		Short: "Have the node fetch a URL, or a list of them, to serve it from then on",
		Long: `Have the node fetch a URL to serve it from then on, whether or not its host still does. Of
a list every line is fetched, eight at a time: a URL, and behind it the hash that it must
have or none. What is there already is not fetched again, so that a list
that was interrupted is given once more. A node that is busy is waited for.

The host has to be in edge.allow, and edge.mode to be "live".`,
		Example: `  ronbox edge fill https://cdn.example/fonts/a.woff2
  ronbox edge fill -f assets.txt
  ronbox edge fill --refresh --expect b3:4487… https://cdn.example/style.json`,
		Args: cli.AtMost(1, "one URL, or a list with -f"),
	}
	cmd.Flags().StringVarP(&list, "file", "f", "", "`file` with a URL a line, and the b3:… that is expected behind it; - is stdin")
	cmd.Flags().StringVar(&one.Expect, "expect", "", "`b3:…` that the bytes must have; others are refused")
	cmd.Flags().BoolVar(&one.Refresh, "refresh", false, "fetch it although it is there")
	cmd.MarkFlagsMutuallyExclusive("file", "expect")
	cmd.RunE = a.online(fillTimeout, func(ctx context.Context, c edgeapi.Client, args []string) error {
		if (list == "") == (len(args) == 0) {
			return cli.Usage("want one URL, or a list with -f")
		}
		if list == "" {
			one.URL = args[0]
			done := a.fill(ctx, c, one)
			if done.err != nil {
				return done.err
			}
			return a.Show(done, func(t cli.Table) { done.table(t) })
		}
		todo, err := a.readList(list, one.Refresh)
		if err != nil {
			return err
		}
		return a.fillAll(ctx, c, todo)
	})
	return cmd
}

func (a app) readList(file string, refresh bool) (todo []edgeapi.Fill, err error) {
	raw, err := a.ReadInput(file, maxList)
	for line := range strings.Lines(string(raw)) {
		switch words := strings.Fields(line); {
		case len(words) == 0 || strings.HasPrefix(words[0], "#"):
		case len(words) > 2:
			return nil, cli.Usage("%s: %q is more than a URL and a hash", file, cli.Clip(line, 80))
		default:
			todo = append(todo, edgeapi.Fill{URL: words[0], Expect: strings.Join(words[1:], ""), Refresh: refresh})
		}
	}
	return todo, err
}

// filled is one fill in the output of edge fill.
type filled struct {
	edgeapi.Object
	Problem *wire.Problem `json:"problem,omitzero"`
	err     error
}

// fill has the node fetch a URL, and waits for a node that is busy.
func (a app) fill(ctx context.Context, c edgeapi.Client, f edgeapi.Fill) (out filled) {
	patience := a.Repeater()
	out.err = patience.Repeat(ctx, f.URL, func() (err error) {
		out.Object, err = c.Fill(ctx, f)
		return err
	})
	out.URL = f.URL
	out.Problem, _ = errors.AsType[*wire.Problem](out.err)
	return out
}

func (f filled) table(t cli.Table) {
	if f.err != nil {
		t.Row("FAILED", f.URL, f.err)
		return
	}
	t.Row(map[bool]string{true: "stored", false: "there"}[f.New], f.Path, cli.Bytes(f.Size), cli.ShortHash(f.B3))
}

// fillAll has the node fetch every URL of a list, some side by side.
func (a app) fillAll(ctx context.Context, c edgeapi.Client, todo []edgeapi.Fill) error {
	all, next, done := make([]filled, len(todo)), atomic.Int64{}, atomic.Int64{}
	p := a.Progress(cli.Count, "fill, URLs")
	err := flow.Fan(ctx, min(sideBySide, len(todo)), func(ctx context.Context, leg int) error {
		for i := next.Add(1) - 1; i < int64(len(todo)) && ctx.Err() == nil; i = next.Add(1) - 1 {
			all[i] = a.fill(ctx, c, todo[i])
			if n := done.Add(1); leg == 0 {
				p.At(n, int64(len(todo)))
			}
		}
		return context.Cause(ctx)
	})
	p.End()
	if err != nil {
		return err
	}
	failed, fresh := 0, 0
	for _, f := range all {
		switch {
		case f.err != nil:
			failed, a.Exit = failed+1, cli.ExitFailed
		case f.New:
			fresh++
		}
	}
	return a.Show(all, func(t cli.Table) {
		for _, f := range all {
			f.table(t)
		}
		t.Row(fmt.Sprintf("%d stored, %d were there, %d failed", fresh, len(all)-fresh-failed, failed))
	})
}
