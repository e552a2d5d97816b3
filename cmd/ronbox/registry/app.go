package registry

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"ronbox/cmd/ronbox/cli"
	"ronbox/engines/registry/record"
	registryapi "ronbox/httpapi/wire/registry"
)

func HeadLine(h registryapi.Head) string {
	if h.Version == 0 {
		return "none: the log has no genesis"
	}
	return "version " + cli.Decimal(h.Version) + ", " + cli.ShortHash(h.PayloadB3.String())
}

// app is the run of the command with the verbs of this package.
type app struct{ *cli.App }

// online returns the RunE of a verb that calls the node.
func (a app) online(run func(ctx context.Context, c registryapi.Client, args []string) error) cli.RunE {
	return cli.Online(a.App, registryapi.NewClient, run)
}

// shown returns a function that shows the answer of a call.
func shown[T any](a app, human func(cli.Table, T)) func(T, error) error {
	return func(doc T, err error) error {
		if err != nil {
			return err
		}
		return a.Show(doc, func(t cli.Table) { human(t, doc) })
	}
}

// exitTooOld is the exit code if the newest checkpoint is too old. The other exit codes of the
// registry are in its table of registryapi.
const exitTooOld = 24

// errorRows are the outcomes of faults in the members of a document.
func errorRows() []cli.ErrorRow {
	row := func(named bool, next string) cli.ErrorRow {
		return cli.ErrorRow{
			Is: func(err error) bool {
				f, ok := errors.AsType[*record.FieldError](err)
				return ok && (f.Field != "") == named
			},
			Outcome: cli.Outcome{Code: cli.ExitFailed, Reason: "malformed", Next: next},
		}
	}
	return []cli.ErrorRow{
		row(true, "correct the member that is named"),
		row(false, "correct the file at that place: it must be one strict JSON value in UTF-8"),
	}
}

// noGenesis is the outcome of a verb that needs a log with a genesis.
var noGenesis = cli.Outcome{
	Code: cli.ExitFailed, Reason: "no_genesis",
	Next: registryapi.Refusals.Find("degraded", registryapi.CauseNoGenesis).Next,
}

// begun reads HEAD of a log that must have a genesis.
func begun(ctx context.Context, node interface {
	Head(ctx context.Context) (registryapi.Head, error)
}) (registryapi.Head, error) {
	head, err := node.Head(ctx)
	if err == nil && head.Version == 0 {
		err = &cli.Failure{Outcome: noGenesis, Err: errors.New("the log has no genesis")}
	}
	return head, err
}

func headTable(t cli.Table, h registryapi.Head) {
	if h.Version == 0 {
		t.Row("the log has no genesis: `ronbox registry genesis` and `registry init` make one")
		return
	}
	t.Rows("version", h.Version, "payload", h.PayloadB3, "hash", h.Hash, "committed", h.CommittedAt,
		"signer epoch", h.Epoch, "incarnation", h.Incarnation)
}

func versionsTable(t cli.Table, list registryapi.VersionList) {
	if len(list.Versions) == 0 {
		t.Row("no versions")
		return
	}
	t.Row("VERSION", "COMMITTED", "KIND", "HASH", "SIGNED BY")
	for _, v := range list.Versions {
		t.Row(v.Version, v.CommittedAt, v.Kind, cli.ShortHash(v.Hash.String()), strings.Join(v.Signers, " "))
	}
	if list.Next > 0 {
		t.Row("more: --before " + cli.Decimal(list.Next))
	}
}

func versionTable(t cli.Table, v registryapi.Version) {
	t.Rows("version", v.Version, "kind", v.Kind, "payload", v.PayloadB3, "hash", v.Hash, "previous", v.PrevHash,
		"items root", v.ItemsRoot, "committed", v.CommittedAt, "signer epoch", v.Epoch)
	for _, ap := range v.Approvals {
		t.Row("approved by", ap.SignerID+" at "+ap.SignedAt)
	}
	if len(v.Items) > 0 {
		t.Row("items", len(v.Items))
	}
	for _, it := range v.Items {
		t.Row("", string(it))
	}
}

func (a app) printBytes(raw []byte, err error) error {
	if err != nil {
		return err
	}
	return a.Print(raw)
}

func diffTable(t cli.Table, d registryapi.Diff) {
	for _, p := range d.Put {
		t.Row("+ " + string(p))
	}
	for _, id := range d.Remove {
		t.Row("- " + id)
	}
	t.Row(cli.Decimal(uint64(len(d.Put))) + " put, " + cli.Decimal(uint64(len(d.Remove))) + " removed")
}

// versionArg parses a version or an epoch: a whole number from least on.
func versionArg(s string, least uint64) (uint64, error) {
	v, err := strconv.ParseUint(s, 10, 53)
	if err != nil || v < least || s != cli.Decimal(v) {
		return 0, cli.Usage("%q is not a version: want 1, 2, 3 …", s)
	}
	return v, nil
}

func auditTable(t cli.Table, page registryapi.AuditChain) {
	for _, raw := range page.Records {
		rec, err := record.ParseAudit(raw)
		if err != nil {
			t.Row(string(raw)) // of a newer node
			continue
		}
		what := rec.Event
		if rec.Reason != "" {
			what += " (" + rec.Reason + ")"
		}
		version := ""
		if rec.Version > 0 {
			version = "version " + cli.Decimal(rec.Version)
		}
		t.Row(rec.Seq, rec.At, what, version, strings.TrimSpace(rec.ProposalID+" "+strings.Join(rec.Signers, " ")))
	}
	t.Row("the chain ends with record " + cli.Decimal(page.Seq) + ", " + page.B3.String())
}
