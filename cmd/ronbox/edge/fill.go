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
	"ronbox/httpapi/wire"
	edgeapi "ronbox/httpapi/wire/edge"
)

const (
	fillTimeout = 200 * time.Second // a little more than the deadline of the node
	sideBySide  = 8                 // concurrent fills of a list: the default of edge.fill.workers
	maxList     = 16 << 20          // bytes of a list
)

func (a app) fillCmd() *cobra.Command {
	var list string
	var one edgeapi.Fill
	cmd := &cobra.Command{
		Use:   "fill URL",
		Short: "Fetch URLs into the content store",
		Long: `Fetch a URL into the content store of the node, which serves it even if the host of
the URL becomes unavailable. Each line of a list has a URL and optionally the hash
that its bytes must have. Eight URLs are fetched at a time. A stored URL is not
fetched again, so an interrupted list can be repeated. The command retries while the
node is busy.

The URL is pinned: it is not evicted until ` + "`ronbox edge unpin`" + ` unpins it or
` + "`ronbox edge remove`" + ` removes it. If the pin would exceed edge.cas.max_pinned, the URL is
stored without a pin; so is a pinned URL whose refresh brings a larger object. The
command then prints the reason and exits with 21.

edge.mode must be "live", and the host must be in edge.allow.`,
		Example: `  ronbox edge fill https://cdn.example/fonts/a.woff2
  ronbox edge fill -f assets.txt
  ronbox edge fill --refresh --expect b3:4487… https://cdn.example/style.json`,
		Args: cli.AtMost(1, "one URL, or a list with -f"),
	}
	flags := cmd.Flags()
	flags.StringVarP(&list, "file", "f", "", "`file` with a URL per line, optionally followed by its b3:…; - is stdin")
	flags.StringVar(&one.Expect, "expect", "", "`b3:…` that the bytes must have")
	flags.BoolVar(&one.Refresh, "refresh", false, "ask the host even if the URL is stored")
	flags.BoolVar(&one.NoPin, "no-pin", false, "do not pin the URL, so that it may be evicted")
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
			if done.Unpinned != "" {
				a.Exit = cli.ExitSomeRefused
			}
			return a.Show(done, func(t cli.Table) { done.table(t) })
		}
		todo, err := a.readList(list, one)
		if err != nil {
			return err
		}
		return a.fillAll(ctx, c, todo, cli.ExitFailed)
	})
	return cmd
}

func (a app) readList(file string, like edgeapi.Fill) (todo []edgeapi.Fill, err error) {
	raw, err := a.ReadInput(file, maxList)
	for line := range strings.Lines(string(raw)) {
		switch words := strings.Fields(line); {
		case len(words) == 0 || strings.HasPrefix(words[0], "#"):
		case len(words) > 2:
			return nil, cli.Usage("%s: %q is more than a URL and a hash", file, cli.Clip(line, 80))
		default:
			todo = append(todo, edgeapi.Fill{
				URL: words[0], Expect: strings.Join(words[1:], ""), Refresh: like.Refresh, NoPin: like.NoPin,
			})
		}
	}
	return todo, err
}

// filled is the result of one fill in the output of edge fill.
type filled struct {
	edgeapi.Object
	Problem *wire.Problem `json:"problem,omitzero"`
	err     error
}

// fill fetches a URL on the node, and retries while the node is busy.
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
	what := "there"
	switch {
	case f.New:
		what = "stored"
	case f.Unchanged:
		what = "unchanged"
	}
	row := []any{what, f.Path, cli.Bytes(f.Size), cli.ShortHash(f.B3)}
	if f.Unpinned != "" {
		row = append(row, "NOT PINNED: "+f.Unpinned)
	}
	t.Row(row...)
}

// fillAll fetches every URL of a list on the node, several at a time. The command exits with failed
// if a URL fails.
func (a app) fillAll(ctx context.Context, c edgeapi.Client, todo []edgeapi.Fill, failedExit int) error {
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
	failed, fresh, loose := 0, 0, 0
	for _, f := range all {
		switch {
		case f.err != nil:
			failed++
		case f.New:
			fresh++
		}
		if f.Unpinned != "" {
			loose++
		}
	}
	switch {
	case failed > 0:
		a.Exit = failedExit
	case loose > 0:
		a.Exit = cli.ExitSomeRefused
	}
	return a.Show(all, func(t cli.Table) {
		for _, f := range all {
			f.table(t)
		}
		sum := fmt.Sprintf("%d stored, %d already stored, %d failed", fresh, len(all)-fresh-failed, failed)
		if loose > 0 {
			sum += fmt.Sprintf(", %d not pinned: raise edge.cas.max_pinned, or unpin other URLs", loose)
		}
		t.Row(sum)
	})
}
