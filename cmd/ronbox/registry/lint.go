package registry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"ronbox/appliance/b3"
	"ronbox/cmd/ronbox/cli"
	"ronbox/engines/fleet"
	"ronbox/engines/registry/record"
)

// maxLint bounds the file: 65,536 descriptors of 1 KiB on average.
const maxLint = 64 << 20

// lintDoc is the output of lint.
type lintDoc struct {
	OK         bool          `json:"ok"`
	Items      int           `json:"items"`
	Nodes      int           `json:"nodes"`
	Services   int           `json:"services"`
	Placements int           `json:"placements"`
	Pins       int           `json:"pins"`
	Faults     []fleet.Fault `json:"faults"`
}

func (a app) lintCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "lint FILE",
		Short: "Check descriptors against the conventions of a fleet, without a node",
		Long: `Check the descriptors of a file against the conventions by which the nodes of a fleet read
them: node/NAME, service/WHAT@REGION#N, service/fleet, placement/NAME and
policy/TENANT/ID. The file is a payload or a draft, as for propose, or one descriptor a
line, as for apply; "-" is stdin. Nodes ignore a descriptor with a fault, and both of two
nodes with one identity or one name; under a policy pin with a fault, no policy of its
tenant runs that another does not pin. Of a delta, only the descriptors in the file are
compared with one another.

Exit 0: no faults. Exit 3: nodes ignore a descriptor.`,
		Example: `  ronbox registry lint draft.json`,
		Args:    cli.Exactly(1, "one file"),
		RunE: a.Verb(func(_ context.Context, args []string) error {
			raw, err := a.ReadInput(args[0], maxLint)
			if err != nil {
				return err
			}
			doc, err := lint(args[0], raw)
			if err != nil {
				return err
			}
			problem := ""
			if !doc.OK {
				problem = fmt.Sprintf("%s: %d faults", args[0], len(doc.Faults))
			}
			return a.ShowChecked(doc, problem, "", doc.table)
		}),
	}
}

func (d *lintDoc) table(t cli.Table) {
	for _, f := range d.Faults {
		t.Row("FAULT", f.ID, f.Field, f.Reason)
	}
	if d.OK {
		t.Row("good", fmt.Sprintf("%d items: %d nodes, %d services, %d placements, %d pins", d.Items, d.Nodes,
			d.Services, d.Placements, d.Pins))
	}
}

// lint checks the descriptors of a file. It returns an error if the form of the file is
// unknown.
func lint(name string, raw []byte) (*lintDoc, error) {
	parts, err := descriptors(raw)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	doc := &lintDoc{Faults: []fleet.Fault{}}
	var items []record.Item
	seen := map[string]bool{}
	for _, p := range parts {
		it, err := record.ParseItem(p.raw)
		if wrong, ok := errors.AsType[*record.FieldError](err); ok {
			doc.Faults = append(doc.Faults, fleet.Fault{ID: p.place, Field: wrong.Field, Reason: wrong.Reason})
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", name, p.place, err)
		}
		if seen[it.ID] {
			doc.Faults = append(doc.Faults, fleet.Fault{ID: it.ID, Field: "id", Reason: "is there twice"})
			continue
		}
		seen[it.ID] = true
		items = append(items, it)
	}
	v := fleet.New(0, b3.Digest{}, "", slices.Values(items))
	doc.Items, doc.Faults = len(parts), append(doc.Faults, v.Faults...)
	doc.Nodes, doc.Services = len(v.Nodes), len(v.Services)
	doc.Placements, doc.Pins = len(v.Placements), len(v.Pins)
	doc.OK = len(doc.Faults) == 0
	return doc, nil
}

// part is a descriptor of a file.
type part struct {
	place string // "put.3" or "line 4"
	raw   []byte
}

// descriptors returns the descriptors of a payload, a draft, or a file with one a line.
func descriptors(raw []byte) (parts []part, err error) {
	var doc struct {
		Type          string           `json:"type"`
		SchemaVersion string           `json:"schema_version"`
		Items         []jsontext.Value `json:"items"`
		Put           []jsontext.Value `json:"put"`
	}
	if _, err := record.Canonical(raw); err == nil {
		if err := json.Unmarshal(raw, &doc); err != nil {
			return nil, &record.FieldError{Reason: "is neither a payload nor a draft: " + err.Error()}
		}
	}
	if doc.SchemaVersion == "" && doc.Type == "" && doc.Items == nil && doc.Put == nil {
		for i, line := range bytes.Split(raw, []byte("\n")) {
			if line = bytes.TrimSpace(line); len(line) > 0 {
				parts = append(parts, part{"line " + strconv.Itoa(i+1), line})
			}
		}
		return parts, nil
	}
	for i, one := range doc.Items {
		parts = append(parts, part{"items." + strconv.Itoa(i), one})
	}
	for i, one := range doc.Put {
		parts = append(parts, part{"put." + strconv.Itoa(i), one})
	}
	return parts, nil
}
