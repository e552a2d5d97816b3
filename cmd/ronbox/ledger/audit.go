package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"

	"ronbox/cmd/ronbox/cli"
	"ronbox/engines/ledger/lverify"
	"ronbox/engines/ledger/record"
	"ronbox/httpapi/wire"
	ledgerapi "ronbox/httpapi/wire/ledger"
)

const auditFormat = "ronbox-ledger-audit-v1"

// auditState is the state that an auditor keeps between audits: the last proven head.
type auditState struct {
	Format string      `json:"format"`
	Head   record.Head `json:"head"`
	At     time.Time   `json:"at"`
	Looks  uint64      `json:"looks"`
}

// auditedDoc is the output of ledger audit.
type auditedDoc struct {
	OK      bool        `json:"ok"`
	First   bool        `json:"first"`            // no earlier head was known
	Trusted record.Head `json:"trusted,omitzero"` // the earlier head
	Head    record.Head `json:"head"`             // the head of the node
	Looks   uint64      `json:"looks"`
	Periods uint64      `json:"periods,omitzero"` // closed ones, whose files prove what the node no longer can
	Problem string      `json:"problem,omitzero"`
}

func (a app) auditCmd() *cobra.Command {
	var state, periods string
	cmd := &cobra.Command{
		Use:   "audit --state FILE [URL]",
		Short: "Check that the ledger of a node has only grown since the last audit",
		Long: `Check that the ledger of a node has only grown since the last audit. The first audit
trusts the head of the ledger and writes it to FILE. Each later audit demands a proof
that the ledger has only grown since, and then writes the newer head. A node that has
lost, rewritten or forked its ledger has no such proof.

A node has no proof from within a closed period. If the last audit saw such a head, copy
the files of all periods and name their folder with --periods: they are verified, and must
lead from that head to the one that the node has a proof from.

Run it from time to time on another machine. URL, or the flags, name the node.
Exit 0: the ledger has only grown. Exit 3: it has not, and FILE does not change.`,
		Example: `  ronbox ledger audit --state ledger.audit https://node.example --token-file audit.token
  ronbox --data-dir data ledger audit --state ledger.audit --json
  ronbox ledger audit --state ledger.audit https://node.example --periods periods`,
		Args: cli.AtMost(1, "at most one URL"),
	}
	cmd.Flags().StringVar(&state, "state", "", "`file` with the last proven head")
	cmd.Flags().StringVar(&periods, "periods", "", "`folder` with the files of all closed periods")
	cli.Require(cmd, "state")
	cmd.RunE = a.Verb(func(ctx context.Context, args []string) error {
		if len(args) == 1 {
			if a.Flags.URL != "" || a.Flags.Socket != "" {
				return cli.Usage("the node is named twice: give its URL once")
			}
			a.Flags.URL = args[0]
		}
		c, err := a.Client()
		if err != nil {
			return err
		}
		defer c.Close()
		return a.audit(ctx, ledgerapi.NewClient(c), state, periods)
	})
	return cmd
}

// ledgerNode is the part of ledgerapi.Client that an audit uses.
type ledgerNode interface {
	LedgerHead(ctx context.Context) (ledgerapi.LedgerHead, error)
	Consistency(ctx context.Context, from, to uint64) ([]byte, error)
}

func (a app) audit(ctx context.Context, node ledgerNode, file, periods string) error {
	var was auditState
	if err := cli.ReadAudit(file, &was, func() bool { return was.Format == auditFormat && was.Looks > 0 }); err != nil {
		return err
	}
	head, err := headOf(ctx, node)
	if err != nil {
		return err
	}
	doc := auditedDoc{First: was.Looks == 0, Trusted: was.Head, Head: head, Looks: was.Looks}
	bad, err := checkGrowth(ctx, node, was.Head, head)
	if inPeriod(err) && periods != "" {
		doc.Periods, bad, err = a.growthAfter(ctx, node, periods, was.Head, head)
	}
	if inPeriod(err) {
		return cli.Fail(cli.ExitFailed, record.PeriodClosed.String(), "copy the files of all closed periods, and name "+
			"their folder with --periods; with another --state FILE the audit begins again and trusts the node",
			"the node has closed the period of batch %d, and has no proof from there on", was.Head.Batches)
	}
	if err != nil {
		return err
	}
	if doc.OK = bad == nil; doc.OK {
		doc.Looks++
		if err := cli.WriteAudit(file, auditState{auditFormat, head, a.Now().UTC(), doc.Looks}); err != nil {
			return err
		}
	} else {
		doc.Problem = bad.Error()
	}
	return a.ShowChecked(doc, doc.Problem, "", func(t cli.Table) { auditedTable(t, doc) })
}

func headOf(ctx context.Context, node ledgerNode) (h record.Head, err error) {
	w, err := node.LedgerHead(ctx)
	if err != nil {
		return h, err
	}
	h.Batches, h.Seq = w.Batches, w.Seq
	return h, errors.Join(h.Root.UnmarshalText([]byte(w.LogRoot)), h.LastRoot.UnmarshalText([]byte(w.LastRoot)))
}

// checkGrowth requests and checks the proof that the ledger only appended from head was to head
// now. bad is the fault that was found. err is set if the check was not possible.
func checkGrowth(ctx context.Context, node ledgerNode, was, now record.Head) (bad, err error) {
	switch {
	case now.Batches < was.Batches:
		return fmt.Errorf("the ledger has %d batches and had %d before: what was done is gone", now.Batches,
			was.Batches), nil
	case was.Batches == 0:
		return nil, nil
	case now.Batches == was.Batches && now == was:
		return nil, nil
	case now.Batches == was.Batches:
		return fmt.Errorf("the ledger has another root after %d batches than it had before", was.Batches), nil
	}
	raw, err := node.Consistency(ctx, was.Batches, now.Batches)
	if err != nil {
		return cli.NoProof(err)
	}
	var c record.Consistency
	if err := json.Unmarshal(raw, &c); err != nil {
		return fmt.Errorf("the node's proof is not valid: %w", err), nil
	}
	if c.From != was.Log() || c.To != now.Log() {
		return errors.New("the node proves something else than what was asked: a relation of other heads"), nil
	}
	return c.Verify(), nil
}

// inPeriod reports whether a node has refused a proof that begins in a closed period.
func inPeriod(err error) bool {
	p, ok := errors.AsType[*wire.Problem](err)
	return ok && p.Reason == record.PeriodClosed.String()
}

// growthAfter checks that the files of periods lead on from head was, and the node's ledger from
// their last batch to head now. It returns the number of the periods.
func (a app) growthAfter(
	ctx context.Context, node ledgerNode, dir string, was, now record.Head,
) (n uint64, bad, err error) {
	p := a.Progress(cli.Count, "verify, records")
	files := lverify.NewPeriods(lverify.Options{Known: was.Log(), Progress: p.Of})
	rep, err := files.Folder(ctx, dir)
	p.End()
	switch n = files.Last().Period; {
	case err != nil:
		return n, nil, err
	case !rep.OK:
		return n, fmt.Errorf("the files of closed periods: %v", rep.Findings[0]), nil
	case rep.Head.Batches < was.Batches:
		return n, fmt.Errorf("the files of closed periods end with batch %d, before batch %d of the last audit",
			rep.Head.Batches, was.Batches), nil
	}
	bad, err = checkGrowth(ctx, node, rep.Head, now)
	return n, bad, err
}

func auditedTable(t cli.Table, d auditedDoc) {
	switch {
	case !d.OK:
		t.Row(cli.Bad("BAD"), d.Problem)
		t.Row("trusted", fmt.Sprintf("%d batches, %s", d.Trusted.Batches, d.Trusted.Root))
		t.Row("now", fmt.Sprintf("%d batches, %s", d.Head.Batches, d.Head.Root))
		return
	case d.First:
		t.Row("trusted", "first audit: later audits compare the ledger with this head")
	case d.Periods != 0:
		t.Row(cli.OK("sound"), fmt.Sprintf("the ledger has only grown since batch %d, which the files of closed "+
			"periods and the node have proven", d.Trusted.Batches))
	default:
		t.Row(cli.OK("sound"), fmt.Sprintf("the ledger has only grown since batch %d, which the node has "+
			"proven", d.Trusted.Batches))
	}
	t.Row("batches", d.Head.Batches)
	t.Row("log root", d.Head.Root)
	t.Row("looks", d.Looks)
}
