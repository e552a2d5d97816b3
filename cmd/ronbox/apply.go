package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"ronbox/engines/registry/record"
	"ronbox/httpapi/client"
)

func (a *app) applyCmd() *cobra.Command {
	var keys []string
	cmd := &cobra.Command{
		Use: "apply FILE… --key KEY [--key KEY2 …]",
		Example: `  ronbox --data-dir data registry apply testdata/registry/*.ndjson --key data/registry/dev-signer.key
  generate-state | ronbox registry apply - --key a.key --key b.key --json`,
		Short: "Make each file the registry's next state: propose, sign, approve, commit",
		Long: `Make each file the registry's next state: propose, sign, approve, commit.

A file is a whole desired state, one descriptor a line; "-" is stdin. What differs
from HEAD becomes one signed version, and nothing happens when nothing differs.
Each key approves; there must be as many as the signer set's threshold. Where
signers sit on different machines, use propose, approve and commit.

The verb checks what the node says HEAD is, builds the payload itself, and signs
nothing else. It is safe to repeat: an answer that was lost is asked for again.`,
		Args: atLeast(1, "one file or more"),
	}
	cmd.Flags().StringArrayVar(&keys, "key", nil, "key `file` to approve with")
	cmd.RunE = a.online(func(ctx context.Context, c *client.Client, files []string) error { return a.apply(ctx, c, files, keys) })
	return cmd
}

// appliedDoc is what apply prints: a result per file, and the last version at the top.
type appliedDoc struct {
	Results     []applied `json:"results"`
	Version     uint64    `json:"version"`
	PayloadB3   string    `json:"payload_b3"`
	CommittedAt string    `json:"committed_at"`
	Hash        string    `json:"hash"`
}

// applied is what became of one file.
type applied struct {
	File        string `json:"file"`
	Version     uint64 `json:"version"` // that holds the file's state
	PayloadB3   string `json:"payload_b3"`
	CommittedAt string `json:"committed_at"`
	Hash        string `json:"hash"`
	Put         int    `json:"put"`
	Remove      int    `json:"remove"`
	Changed     bool   `json:"changed"` // false: HEAD was that state already
}

func (a *app) apply(ctx context.Context, c *client.Client, files, keyFiles []string) error {
	keys, err := a.readKeys(keyFiles)
	if err != nil {
		return err
	}
	states, err := a.readStates(files)
	if err != nil {
		return err
	}
	p := a.progress(countUnit)
	p.begin("apply, files")
	ap := &applier{repeater: a.repeater(), node: c, keys: keys, now: a.now, show: a.showDelta}
	doc := appliedDoc{Results: []applied{}}
	for i, items := range states {
		p.at(int64(i), int64(len(states)))
		done, err := ap.apply(ctx, items)
		done.File = files[i]
		if err != nil {
			p.end()
			return withDetails(fmt.Errorf("%s: %w", files[i], err), map[string]any{"file": files[i], "results": doc.Results})
		}
		p.end()
		a.showApplied(done)
		doc.Results = append(doc.Results, done)
		doc.Version, doc.PayloadB3, doc.CommittedAt, doc.Hash = done.Version, done.PayloadB3, done.CommittedAt, done.Hash
	}
	if !a.flags.json {
		return nil // told file by file
	}
	return a.document(doc)
}

// readStates reads all files first: a fault in the last one should not be found after seven commits.
func (a *app) readStates(files []string) ([]record.Items, error) {
	states := make([]record.Items, len(files))
	for i, f := range files {
		if f == "-" && slices.Contains(files[i+1:], f) {
			return nil, usage("stdin can be read once: give - once")
		}
		var err error
		if states[i], err = a.readDesired(f); err != nil {
			return nil, err
		}
		if states[i].Len() == 0 && !a.flags.yes {
			return nil, failed(exitUsage, "empty_state", "add --yes if every descriptor is to go", "%s: no descriptor, which would remove them all: did what wrote it fail?", f)
		}
	}
	return states, nil
}

// sample is how many changed descriptors are shown of a delta.
const sample = 3

// showDelta tells a person what is about to be signed.
func (a *app) showDelta(b record.Base, put []record.Item, remove []string) {
	if a.flags.json || a.flags.quiet {
		return
	}
	var s strings.Builder
	changed := 0
	for _, it := range put {
		if _, known := b.Items.Get(it.ID); known {
			changed++
		}
	}
	fmt.Fprintf(&s, "on top of version %d: %d added, %d changed, %d removed\n", b.Version, len(put)-changed, changed, len(remove))
	writeChanges(&s, put, remove)
	fmt.Fprint(a.stdout, plain(s.String()))
}

// writeChanges lists the first descriptors of a delta, a line each.
func writeChanges(s *strings.Builder, put []record.Item, remove []string) {
	for i, it := range put {
		if i == sample {
			fmt.Fprintf(s, "  + … %d more\n", len(put)-sample)
			break
		}
		fmt.Fprintf(s, "  + %s\n", clip(string(it.Bytes), 110))
	}
	for i, id := range remove {
		if i == sample {
			fmt.Fprintf(s, "  - … %d more\n", len(remove)-sample)
			break
		}
		fmt.Fprintf(s, "  - %s\n", id)
	}
}

func (a *app) showApplied(d applied) {
	if a.flags.json || a.flags.quiet {
		return
	}
	if !d.Changed {
		fmt.Fprint(a.stdout, plain(fmt.Sprintf("%s: nothing differs from version %d\n", d.File, d.Version)))
		return
	}
	fmt.Fprintf(a.stdout, "%s: version %d, payload %s\n", d.File, d.Version, d.PayloadB3)
}
