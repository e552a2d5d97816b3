package registry

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"ronbox/appliance/unit"
	"ronbox/cmd/ronbox/cli"
	"ronbox/engines/registry/record"
	registryapi "ronbox/httpapi/wire/registry"
)

// draftedDoc is the output of signers propose and of supersede.
type draftedDoc struct {
	File       string       `json:"file,omitzero"`        // with --out
	ProposalID string       `json:"proposal_id,omitzero"` // without
	ExpiresAt  string       `json:"expires_at,omitzero"`
	PayloadB3  string       `json:"payload_b3"`
	Version    uint64       `json:"version"`
	Approvers  []electorate `json:"approvers"`
}

// drafted completes a draft on top of base, and writes it to out or proposes it.
func (a app) drafted(ctx context.Context, c registryapi.Client, base record.Base, d record.Draft, out string,
	by []electorate) error {
	d.Version = base.Version + 1
	p, _, err := complete(base, d, a.Now())
	if err != nil {
		return err
	}
	doc := draftedDoc{File: out, PayloadB3: p.B3().String(), Version: p.Version, Approvers: by}
	next := "ronbox registry propose " + unit.Shell(out)
	if out != "" {
		err = cli.WriteFile(out, p.Bytes(), 0o644)
	} else {
		var made registryapi.Proposed
		made, err = c.Propose(ctx, p.Bytes(), doc.PayloadB3)
		doc.ProposalID, doc.ExpiresAt = made.ID, made.ExpiresAt
		next = "each of them: ronbox registry approve " + made.ID + " --key-file KEY"
	}
	if err != nil {
		return err
	}
	return a.Show(doc, func(t cli.Table) {
		t.Opt("written", doc.File)
		t.Opt("proposal", doc.ProposalID)
		t.Rows("version", doc.Version, "payload", doc.PayloadB3)
		t.Opt("expires", doc.ExpiresAt)
		for _, e := range by {
			t.Row("it needs", e)
		}
		t.Row("next", next)
	})
}

func (a app) supersedeCmd() *cobra.Command {
	var back uint64
	var reason, note, out string
	known := []string{record.ReasonDataError, record.ReasonKeyCompromise, record.ReasonGovernanceAction}
	cmd := &cobra.Command{
		Use:   "supersede (FILE | --back-to N) --reason WHY --note TEXT",
		Short: "Propose a version that replaces HEAD, with the reason",
		Long: `Propose a version that replaces HEAD. The log keeps both, and records the reason. The
descriptors are those of FILE, a complete desired state as for apply, or with --back-to
those of version N. It needs the approvals of a change of governance.`,
		Example: `  ronbox registry supersede --back-to 9 --reason DataError --note "the import was cut short"`,
		Args:    cli.AtMost(1, "at most one file"),
	}
	fl := cmd.Flags()
	fl.Uint64Var(&back, "back-to", 0, "restore the descriptors of version `N`")
	fl.StringVar(&reason, "reason", "", strings.Join(known, ", ")+", or a `TEXT` of your own")
	fl.StringVar(&note, "note", "", "what happened, a `TEXT` for readers of the log")
	fl.StringVar(&out, "out", "", "new `file` for the payload (default: it is proposed)")
	cli.Require(cmd, "reason", "note")
	cmd.RunE = a.online(func(ctx context.Context, c registryapi.Client, files []string) error {
		if (len(files) == 1) == (back > 0) {
			return cli.Usage("want a FILE or --back-to N: the state that replaces HEAD")
		}
		base, err := headBase(ctx, c)
		if err != nil {
			return err
		}
		desired, err := a.desired(ctx, c, files, back, base.Version)
		if err != nil {
			return err
		}
		d := record.Draft{Supersede: &record.Supersede{Of: base.Hash, Reason: reason, Note: note}}
		if !slices.Contains(known, reason) {
			d.Supersede.Reason, d.Supersede.Other = record.ReasonOther, reason
		}
		d.Put, d.Remove = record.Diff(base.Items, desired)
		if len(d.Put)+len(d.Remove) == 0 {
			return cli.Fail(cli.ExitFailed, "no_change", "", "the state does not differ from version %d", base.Version)
		}
		a.showDelta(base, d.Put, d.Remove)
		return a.drafted(ctx, c, base, d, out, []electorate{standing(base.Signers, nil)})
	})
	return cmd
}

// desired reads the descriptors of a supersede: those of its file, or of version back, which is
// below head.
func (a app) desired(ctx context.Context, c registryapi.Client, files []string,
	back, head uint64) (record.Items, error) {
	if len(files) == 1 {
		states, err := a.readStates(files)
		if err != nil {
			return record.Items{}, err
		}
		return states[0], nil
	}
	if back >= head {
		return record.Items{}, cli.Usage("--back-to %d: HEAD is version %d; want one below it", back, head)
	}
	_, items, err := fetchItems(ctx, c, back)
	return items, err
}
