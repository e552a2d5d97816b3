package registry

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"ronbox/cmd/ronbox/cli"
	"ronbox/engines/registry/record"
	registryapi "ronbox/httpapi/wire/registry"
)

func (a app) applyCmd() *cobra.Command {
	var f applyFlags
	cmd := &cobra.Command{
		Use:     "apply FILE… --key-file KEY [--key-file KEY2 …]",
		Example: `  ronbox --data-dir data registry apply testdata/registry/*.ndjson --key-file data/registry/dev-signer.key`,
		Short:   "Make each file the next state of the registry: propose, sign, approve, commit",
		Long: `Make each file the next state of the registry: propose, sign, approve, commit. A file is
a complete desired state, one descriptor a line; "-" is stdin. The difference from HEAD
becomes one signed version. Each key approves it; give as many keys as the threshold. The
payload is built here from a HEAD that was checked, and nothing else is signed. A repeat
is safe. KEY.signed stops a key from signing a second payload for one version, as for
sign. --expiry tells readers how long they may rely on the version.`,
		Args: cli.AtLeast(1, "one file or more"),
	}
	fl := cmd.Flags()
	fl.StringArrayVar(&f.keys, "key-file", nil, "key `file` to approve with")
	fl.StringVar(&f.expiry, "expiry", "",
		"`time` after which the version is out of date: RFC 3339, or a span from now such as 720h")
	fl.BoolVar(&f.force, "force", false, "sign although another payload of that version was signed")
	cmd.RunE = a.online(func(ctx context.Context, c registryapi.Client, files []string) error {
		return a.apply(ctx, c, files, f)
	})
	return cmd
}

type applyFlags struct {
	keys   []string
	expiry string
	force  bool
}

// expiryTime parses --expiry: a time in the future, or a span from now.
func expiryTime(text string, now time.Time) (string, error) {
	if text == "" {
		return "", nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if span, bad := time.ParseDuration(text); bad == nil {
		at, err = now.Add(span), nil
	}
	if err != nil || !at.After(now) {
		return "", cli.Usage("--expiry %q: want a future time, as 2030-01-02T15:04:05Z, or a span such as 720h", text)
	}
	return record.FormatTime(at.UTC().Truncate(time.Second)), nil
}

// appliedDoc is the output of apply: a result per file, and the last version at the top.
type appliedDoc struct {
	Results []applied `json:"results"`
	registryapi.Committed
}

// applied is the result of one file.
type applied struct {
	File                  string `json:"file"`
	registryapi.Committed        // the version with the state of the file
	Put                   int    `json:"put"`
	Remove                int    `json:"remove"`
	Changed               bool   `json:"changed"` // false: HEAD had that state already
}

func (a app) apply(ctx context.Context, c registryapi.Client, files []string, f applyFlags) error {
	keys, err := a.readKeys(f.keys)
	if err != nil {
		return err
	}
	expiry, err := expiryTime(f.expiry, a.Now())
	if err != nil {
		return err
	}
	states, err := a.readStates(files)
	if err != nil {
		return err
	}
	p := a.Progress(cli.Count, "apply, files")
	ap := &applier{
		Repeater: a.Repeater(), node: c, keys: keys, now: a.Now, show: a.showDelta,
		force: f.force, expiry: expiry,
	}
	doc := appliedDoc{Results: []applied{}}
	for i, items := range states {
		p.At(int64(i), int64(len(states)))
		done, err := ap.apply(ctx, items)
		done.File = files[i]
		if err != nil {
			p.End()
			return &cli.Failure{
				Err:     fmt.Errorf("%s: %w", files[i], err),
				Details: map[string]any{"file": files[i], "results": doc.Results},
			}
		}
		p.End()
		if done.Changed {
			a.tell(fmt.Sprintf("%s: version %d, payload %s\n", done.File, done.Version, done.PayloadB3))
		} else {
			a.tell(fmt.Sprintf("%s: nothing differs from version %d\n", done.File, done.Version))
		}
		doc.Results, doc.Committed = append(doc.Results, done), done.Committed
	}
	if !a.Flags.JSON {
		return nil // printed file by file
	}
	return a.PrintJSON(doc)
}

// readStates reads all files before the first commit, so that a fault in the last file stops them
// all.
func (a app) readStates(files []string) ([]record.Items, error) {
	states := make([]record.Items, len(files))
	for i, f := range files {
		if f == "-" && slices.Contains(files[i+1:], f) {
			return nil, cli.Usage("stdin can be read once: give - once")
		}
		var err error
		if states[i], err = a.readDesired(f); err != nil {
			return nil, err
		}
		if states[i].Len() == 0 && !a.Flags.Yes {
			return nil, cli.Fail(cli.ExitUsage, "empty_state", "add --yes to remove every descriptor",
				"%s: no descriptor, which would remove them all: was the file written completely?", f)
		}
	}
	return states, nil
}

// showDelta prints the changes that are about to be signed.
func (a app) showDelta(b record.Base, put []record.Item, remove []string) {
	var s strings.Builder
	changed := 0
	for _, it := range put {
		if _, known := b.Items.Get(it.ID); known {
			changed++
		}
	}
	fmt.Fprintf(&s, "on top of version %d: %d added, %d changed, %d removed\n", b.Version, len(put)-changed, changed,
		len(remove))
	writeChanges(&s, put, remove, nil, sample)
	a.tell(s.String())
}

// tell prints text at once, unless the output is JSON or quiet.
func (a app) tell(text string) {
	if !a.Flags.JSON && !a.Flags.Quiet {
		_, _ = fmt.Fprint(a.Stdout, cli.Plain(text)) // a broken output fails the result that follows
	}
}

// maxDesired bounds one line of a desired state and maxLines their number: twice the limits of the
// registry, so that the registry refuses first.
const (
	maxDesired = 64 << 10
	maxLines   = 2 * 65_536
)

// readDesired reads a desired state: one descriptor a line; empty lines are skipped; "-" is stdin.
func (a app) readDesired(path string) (record.Items, error) {
	if path == "-" {
		return parseDesired("stdin", a.Stdin)
	}
	f, err := os.Open(path)
	if err != nil {
		return record.Items{}, err
	}
	defer func() { _ = f.Close() }() // only read
	return parseDesired(path, f)
}

func parseDesired(name string, r io.Reader) (record.Items, error) {
	var items []record.Item
	lines := map[string]int{} // line of each id
	s := bufio.NewScanner(r)
	s.Buffer(make([]byte, 0, maxDesired), maxDesired)
	n := 1
	for ; s.Scan(); n++ {
		if n == 1 && bytes.HasPrefix(s.Bytes(), []byte("\xef\xbb\xbf")) {
			return record.Items{}, cli.Fail(cli.ExitFailed, "malformed", "save the file as UTF-8 without it",
				"%s:1: begins with a byte order mark", name)
		}
		if len(bytes.TrimSpace(s.Bytes())) == 0 {
			continue
		}
		it, err := record.ParseItem(bytes.Clone(s.Bytes()))
		if err != nil {
			return record.Items{}, fmt.Errorf("%s:%d: %w", name, n, err)
		}
		if first, twice := lines[it.ID]; twice {
			return record.Items{}, cli.Fail(cli.ExitFailed, "malformed", "keep one of the two lines",
				"%s:%d: %s is in line %d already", name, n, it.ID, first)
		}
		lines[it.ID] = n
		if n > maxLines {
			return record.Items{}, cli.Fail(cli.ExitFailed, "hard_limit", "", "%s has more than %d lines", name,
				maxLines)
		}
		items = append(items, it)
	}
	if err := s.Err(); errors.Is(err, bufio.ErrTooLong) {
		return record.Items{}, cli.Fail(cli.ExitFailed, "hard_limit", "", "%s:%d: the line is longer than %d bytes",
			name, n, maxDesired)
	} else if err != nil {
		return record.Items{}, cli.ReadError(name, err)
	}
	return record.NewItems(items)
}
