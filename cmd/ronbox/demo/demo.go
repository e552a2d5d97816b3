package demo

import (
	"context"
	_ "embed" // of the map
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"ronbox/appliance/unit"
	"ronbox/cmd/ronbox/cli"
	"ronbox/httpapi/console"
)

// within bounds the steps of a demonstration.
const within = time.Minute

// world is a map of the world, see NOTICE.md.
//
//go:embed world.pmtiles
var world []byte

// Command returns the verb that demonstrates a node.
func Command(a *cli.App) *cobra.Command {
	var keep bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show in a minute what a node does: pay, crash, repeat, prove, draw a map",
		Long: `Show in a minute what a node does. It runs a node in a temporary folder, pays, kills the
node without warning, sends the same request again, checks the proof of the payment
without the node, and draws a map. Each step is checked before it is reported. Nothing
needs a network, and no other node is touched.

All is removed at the end. --keep keeps the node running until Ctrl-C, so that the map
and the console open in a browser, and keeps its files. --data-dir names the folder,
which must be empty or absent.

Exit 1: a step failed, and the message names it.`,
		Example: `  ronbox demo
  ronbox demo --keep
  ronbox --data-dir trial demo --keep --json`,
	}
	cmd.Flags().BoolVar(&keep, "keep", false, "keep the node running until Ctrl-C, and keep its files")
	cmd.RunE = a.Verb(func(ctx context.Context, _ []string) error { return app{a}.demo(ctx, keep) })
	return cmd
}

// app adds the verb of this package to the run of the command.
type app struct{ *cli.App }

// doc is the output of demo.
type doc struct {
	DataDir string         `json:"data_dir"`
	URL     string         `json:"url"`
	Map     string         `json:"map"`
	Console string         `json:"console"`
	Receipt jsontext.Value `json:"receipt"` // of the payment, as the node sent it
	Steps   []step         `json:"steps"`
	Kept    bool           `json:"kept"` // the node runs, and its files stay
}

// step is one step that succeeded.
type step struct {
	Name  string   `json:"name"`
	Ms    int64    `json:"ms"`
	Shown []string `json:"shown"` // what was done and seen
}

func (a app) demo(ctx context.Context, keep bool) (err error) {
	dir, remove, err := a.folder()
	if err != nil {
		return err
	}
	runtime.LockOSThread() // the node dies with the thread that started it
	run := &run{app: a, dir: dir}
	defer func() {
		if run.node != nil {
			err = errors.Join(err, run.node.kill())
		}
		if !keep {
			err = errors.Join(err, remove())
		}
	}()
	if err := a.print("ronbox in six steps, in %s\n\n", dir); err != nil {
		return err
	}
	if err := run.all(ctx); err != nil {
		return err
	}
	made, err := run.result(ctx, keep)
	if err != nil {
		return err
	}
	if a.Flags.JSON {
		err = a.PrintJSON(made)
	} else {
		err = a.ending(made)
	}
	if err != nil || !keep {
		return err
	}
	if err := run.node.wait(); err != nil {
		return cli.Fail(cli.ExitFailed, "demo", "see "+run.node.log, "the node has ended: %w", err)
	}
	a.Say("\nThe node has stopped. Its files are in %s: `rm -r` removes them.", dir)
	return nil
}

// print prints text for people to stdout, unless --quiet or --json is set.
func (a app) print(format string, args ...any) error {
	if a.Flags.JSON || a.Flags.Quiet {
		return nil
	}
	return a.Print(fmt.Appendf(nil, format, args...))
}

// folder returns the folder of the demonstration and a function that removes what is put there. A
// folder that was there stays.
func (a app) folder() (dir string, remove func() error, err error) {
	if a.Flags.DataDir == "" {
		dir, err = os.MkdirTemp("", "ronbox-demo-")
		return dir, func() error { return os.RemoveAll(dir) }, err
	}
	if dir, err = filepath.Abs(a.Flags.DataDir); err != nil {
		return "", nil, err
	}
	found, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return dir, func() error { return os.RemoveAll(dir) }, nil
	}
	if err == nil && len(found) > 0 {
		err = cli.Fail(cli.ExitFailed, "not_empty", "choose an empty --data-dir, or none", "%s is not empty", dir)
	}
	return dir, func() error {
		found, err := os.ReadDir(dir)
		for _, f := range found {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, f.Name())))
		}
		return err
	}, err
}

// result returns what the demonstration has shown, with the URLs of the node.
func (r *run) result(ctx context.Context, keep bool) (doc, error) {
	link, err := console.NewLink(ctx, r.node.c, console.Link{})
	if err != nil {
		return doc{}, cli.Fail(cli.ExitFailed, "demo", "", "the link of the console: %w", err)
	}
	return doc{
		DataDir: r.dir, URL: r.node.url(), Map: r.mapURL(), Console: link.URL,
		Receipt: r.paid.Raw, Steps: r.done, Kept: keep,
	}, nil
}

// ending prints what is left of the demonstration.
func (a app) ending(d doc) error {
	if !d.Kept {
		return a.print(`
map       %s
console   %s
Both are gone, with the node and its files: ronbox demo --keep keeps them.
`, d.Map, strings.TrimSuffix(d.URL, "/")+"/console/")
	}
	self := unit.Shell(os.Args[0], "--data-dir", d.DataDir)
	return a.print(`
map       %s
console   %s
          (the link opens once, within a minute; another one: %s console)
proof     %s ledger verify-proof %s --receipt %s
The node runs. Ctrl-C stops it.
`, d.Map, d.Console, self, unit.Shell(os.Args[0]), unit.Shell(filepath.Join(d.DataDir, proofName)),
		unit.Shell(filepath.Join(d.DataDir, receiptName)))
}
