package registry

import (
	"context"
	"fmt"
	"runtime"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"
	"golang.org/x/mod/sumdb/tlog"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/cmd/ronbox/cli"
	"ronbox/engines/registry/checkpoint"
	"ronbox/engines/registry/export"
	"ronbox/engines/registry/follow"
	"ronbox/engines/registry/logtree"
	"ronbox/engines/registry/record"
	"ronbox/engines/registry/rverify"
	"ronbox/engines/registry/tables"
	registryapi "ronbox/httpapi/wire/registry"
	"ronbox/store"
)

type verifyFlags struct {
	db, export, proof string
	genesis, seen     string
	logKey            string
	judgeFlags
}

func (a app) verifyCmd() *cobra.Command {
	var f verifyFlags
	cmd := &cobra.Command{
		Use: "verify (--db FILE | --export DIR | --url URL | --proof FILE)",
		Example: `  ronbox registry verify --export log --genesis b3:4487… --checkpoint seen.note
  ronbox registry verify --proof a.proof --log-key registry.example/main+1a2b3c4d+AT…`,
		Short: "Check a whole log with its genesis hash alone, or one proof with the log key alone",
		Long: `Check a whole log with its genesis hash alone: every approval and every quorum by the
signer set in force at its version, the three chains, the item root of every version,
every tile and every checkpoint. With --checkpoint it also checks that the log begins
with an earlier checkpoint. With --proof it checks the output of
` + "`ronbox registry proof`" + ` with the public log key.

With --url it checks the log of a node by its public routes, as a node that follows it
does: without the audit chain, which is not public. A pruned log is checked from what is
kept of it on.

A frozen or forked log is sound in itself. With --policy a checkpoint over all of it must
have the cosignatures that a witness policy demands. With --max-age that checkpoint must
not be older.

Exit 0: sound. Exit 3: bad; the output names which: signature, quorum, chain, tree,
checkpoint or incomplete. Exit 20: witnesses are missing (witness_quorum). Exit 24: the
checkpoint is too old (too_old).`,
	}
	fl := cmd.Flags()
	fl.StringVar(&f.db, "db", "", "database `file`")
	fl.StringVar(&f.export, "export", "", "`directory` of an export")
	fl.StringVar(&f.proof, "proof", "", "`file` of a proof")
	fl.StringVar(&f.genesis, "genesis", "", "payload `hash` of version 1")
	fl.StringVar(&f.seen, "checkpoint", "", "`file` of an earlier checkpoint")
	fl.StringVar(&f.logKey, "log-key", "", "public key of the log, a C2SP `vkey`; for a proof")
	f.add(cmd)
	cmd.Args = f.wants(0, "no arguments")
	cmd.MarkFlagsMutuallyExclusive("db", "export", "proof")
	cmd.RunE = a.Verb(func(ctx context.Context, args []string) error {
		f.take(args, 0)
		if err := a.sourceOf(f); err != nil {
			return err
		}
		switch {
		case f.proof != "" && (f.genesis != "" || f.seen != "" || f.logKey == ""):
			return cli.Usage("a proof is checked with --log-key, and with --policy and --max-age alone")
		case f.proof != "" && f.policy == signedPolicy:
			return cli.Usage("a proof does not contain the signed policy: want --policy=FILE")
		case f.proof != "":
			return a.verifyProof(f)
		case f.genesis == "":
			return cli.Usage("want --genesis: the payload hash of version 1")
		}
		return a.verify(ctx, f)
	})
	return cmd
}

// provenDoc is the output of verify --proof.
type provenDoc struct {
	OK      bool           `json:"ok"`
	Version uint64         `json:"version"`
	Size    uint64         `json:"size"` // of the log under the checkpoint
	Root    string         `json:"root"`
	Item    jsontext.Value `json:"item,omitzero"`   // if present
	Absent  string         `json:"absent,omitzero"` // id, if absent
	Problem string         `json:"problem,omitzero"`
}

func (a app) verifyProof(f verifyFlags) error {
	file, logKey := f.proof, f.logKey
	raw, err := a.ReadInput(file, maxProof)
	if err != nil {
		return err
	}
	var doc registryapi.Proof
	err = json.Unmarshal(raw, &doc, json.RejectUnknownMembers(true))
	if err != nil || doc.Format != registryapi.ProofFormat {
		return cli.Fail(cli.ExitFailed, "malformed", "make one with `ronbox registry proof`", "%s is not a proof (%v)",
			file, err)
	}
	keys, err := logKeys(logKey)
	if err != nil {
		return err
	}
	out, bad := checkProof(doc, keys)
	fault, err := a.judgeProof(f.judgeFlags, doc, keys, bad)
	if err != nil {
		return err
	}
	if fault != nil {
		bad = fault
	}
	out.OK = bad == nil
	if bad != nil {
		out = provenDoc{Version: doc.Version, Problem: bad.Error()}
	}
	return a.showJudged(out, out.Problem, "", fault, func(t cli.Table) { provenTable(t, out) })
}

// judgeProof judges the checkpoint of a proof that holds.
func (a app) judgeProof(f judgeFlags, doc registryapi.Proof, keys checkpoint.Keys,
	bad error) (*checkpointFault, error) {
	j, err := a.newJudge(f, nil)
	if err != nil || bad != nil {
		return nil, err
	}
	s, err := keys.Open([]byte(doc.Checkpoint))
	if err != nil {
		return nil, err
	}
	_, err = j.pick([]checkpoint.Signed{s}, doc.Version)
	return asFault(err), nil
}

// showJudged is cli.ShowChecked with the exit code of an unacceptable checkpoint.
func (a app) showJudged(doc any, problem, kind string, fault *checkpointFault, human func(t cli.Table)) error {
	if fault != nil {
		kind = string(fault.kind)
	}
	err := a.ShowChecked(doc, problem, kind, human)
	if err == nil && fault != nil {
		a.Exit = fault.code()
	}
	return err
}

// logKeys returns the key of --log-key.
func logKeys(vkey string) (checkpoint.Keys, error) {
	keys, err := checkpoint.NewKeys([]string{vkey})
	if err != nil {
		err = cli.Usage("--log-key: %w", err)
	}
	return keys, err
}

// maxProof bounds a proof. Most of it is a quoted payload.
const maxProof = 16 << 20

// checkProof checks the entry under the checkpoint, then the payload and the descriptor under the
// entry.
func checkProof(doc registryapi.Proof, keys checkpoint.Keys) (out provenDoc, err error) {
	signed, err := keys.Open([]byte(doc.Checkpoint))
	if err != nil {
		return out, fmt.Errorf("checkpoint: %w", err)
	}
	out = provenDoc{Version: doc.Version, Size: signed.Size, Root: signed.Root.String()}
	if doc.Version == 0 || doc.Version > signed.Size {
		return out, fmt.Errorf("version %d is not in a log of %d", doc.Version, signed.Size)
	}
	if err := tlog.CheckRecord(doc.Inclusion.Hashes, int64(signed.Size), signed.Root, int64(doc.Version-1),
		logtree.Leaf([]byte(doc.Entry))); err != nil {
		return out, fmt.Errorf("the entry is not version %d of the log: %w", doc.Version, err)
	}
	entry, err := record.ParseEntry([]byte(doc.Entry))
	if err != nil || entry.Version != doc.Version {
		return out, fmt.Errorf("the entry is not that of version %d (%v)", doc.Version, err)
	}
	if doc.Item == nil {
		return out, nil
	}
	p, err := record.ParsePayload([]byte(doc.Payload))
	if err != nil || b3.Sum([]byte(doc.Payload)) != entry.PayloadB3 {
		return out, fmt.Errorf("the payload is not the one that the entry names (%v)", err)
	}
	it, err := doc.Item.Verify(p.ItemsRoot, p.ItemsCount)
	if err != nil {
		return out, err
	}
	if it == nil {
		out.Absent = doc.Item.ID
	} else {
		out.Item = it.Bytes
	}
	return out, nil
}

func provenTable(t cli.Table, d provenDoc) {
	if !d.OK {
		t.Row(cli.Bad("BAD"), d.Problem)
		return
	}
	t.Row(cli.OK("sound"), fmt.Sprintf("version %d is in the log of %d versions, root %s", d.Version, d.Size, d.Root))
	if d.Item != nil {
		t.Row("it says", string(d.Item))
	}
	if d.Absent != "" {
		t.Row("it has", "no descriptor "+d.Absent)
	}
}

// TrustedGenesis returns the options of a check of the log against a genesis hash, or against its
// own genesis if text is empty.
func TrustedGenesis(text string) (rverify.Options, error) {
	o := rverify.Options{Fan: flow.Fan, Jobs: runtime.GOMAXPROCS(0)}
	if text == "" {
		return o, nil
	}
	var err error
	if o.Genesis, err = b3.Parse(text); err != nil {
		return o, cli.Usage("--genesis: %w", err)
	}
	if o.Genesis.IsZero() { // zero would accept any genesis
		return o, cli.Usage("--genesis: no payload has the hash %s", text)
	}
	return o, nil
}

func (a app) verify(ctx context.Context, f verifyFlags) error {
	o, err := TrustedGenesis(f.genesis)
	if err != nil {
		return err
	}
	if f.seen != "" {
		if o.Seen, err = cli.ReadFile(f.seen, 64<<10); err != nil {
			return err
		}
	}
	p := a.Progress(cli.Count, "verify, versions")
	o.Progress = p.Of
	var doc rverify.Report
	switch {
	case f.export != "":
		doc, err = a.verifyExport(ctx, f, o)
	case f.db == "":
		doc, err = a.verifyNode(ctx, f, o)
	default:
		err = cli.ViewDatabase(ctx, f.db, func(r store.Reader) (err error) {
			if doc, err = tables.Verify(ctx, r, o); err != nil {
				return err
			}
			src := tables.NewSource(r)
			return a.judgeReport(f.judgeFlags, &doc, src, src)
		})
	}
	p.End()
	fault := asFault(err)
	if err != nil && fault == nil {
		return err
	}
	problem, kind := "", ""
	if !doc.OK {
		problem, kind = doc.Problem.Error(), string(doc.Problem.Kind)
	}
	return a.showJudged(doc, problem, kind, fault, func(t cli.Table) { verifyTable(t, doc) })
}

func (a app) verifyExport(ctx context.Context, f verifyFlags, o rverify.Options) (doc rverify.Report, err error) {
	l, err := export.Open(f.export)
	if err != nil {
		return doc, err
	}
	if doc, err = rverify.VerifyWhole(ctx, l, l, o); err != nil {
		return doc, err
	}
	return doc, a.judgeReport(f.judgeFlags, &doc, l, l)
}

// verifyNode checks the log of the node at --url by its public routes.
func (a app) verifyNode(ctx context.Context, f verifyFlags, o rverify.Options) (doc rverify.Report, err error) {
	c, err := a.Client()
	if err != nil {
		return doc, err
	}
	defer c.Close()
	found, err := follow.VerifyPublic(ctx, registryapi.NewClient(c), o, a.Now())
	doc = found.Report
	if err != nil || !doc.OK || !f.asked() {
		return doc, err
	}
	j, err := a.newJudge(f.judgeFlags, func() (string, error) { return found.Signers.WitnessPolicy, nil })
	if err == nil {
		_, err = j.pick([]checkpoint.Signed{found.Checkpoint}, doc.Head.Version)
	}
	return failed(doc, err)
}

// failed makes an unacceptable checkpoint the problem of a report.
func failed(doc rverify.Report, err error) (rverify.Report, error) {
	if fault := asFault(err); fault != nil {
		doc.OK, doc.Problem = false, &rverify.Problem{Kind: fault.kind, Detail: fault.detail}
	}
	return doc, err
}

// sourceOf checks that one source of a log is named: a file, an export, a proof, or a node by its
// URL.
func (a app) sourceOf(f verifyFlags) error {
	if f.db == "" && f.export == "" && f.proof == "" && a.URLs() == nil {
		return cli.Usage("want --db FILE, --export DIR, --proof FILE, or --url URL of a node")
	}
	return nil
}

// judgeReport judges the newest checkpoint of a log that holds. A *checkpointFault also becomes the
// problem of the report.
func (a app) judgeReport(f judgeFlags, doc *rverify.Report, r rverify.LogReader, t rverify.TreeReader) error {
	if !doc.OK || !f.asked() {
		return nil
	}
	_, err := a.judgeLog(f, r, t, doc.Head.Version)
	*doc, err = failed(*doc, err)
	return err
}

func verifyTable(t cli.Table, d rverify.Report) {
	t.Row("versions", d.Versions)
	if d.First > 0 {
		t.Row("pruned",
			fmt.Sprintf("whole from version %d on; of those before it, genesis and changes of signers", d.First))
	}
	t.Row("approvals", d.Approvals)
	if d.Profile == rverify.ProfileFollowed {
		t.Row("profile", "followed: a copy without the audit chain of the hub, which is not public")
	} else {
		t.Row("audit records", d.AuditRecords)
	}
	t.Row("head",
		fmt.Sprintf("version %d, %s", d.Head.Version, d.Head.PayloadB3))
	if d.OK {
		t.Row(cli.OK("sound"), "every signature, quorum, chain, root and checkpoint holds")
		return
	}
	t.Row(cli.Bad("BAD"), d.Problem.Kind)
}

// Check returns the verification of the registry as a step of the check of a file. It shows its
// progress in p and stores the report in out.
func Check(ctx context.Context, o rverify.Options, p *cli.Progress, out **rverify.Report) store.Check {
	o.Progress = func(done, total uint64) {
		p.Unit = cli.Count
		p.Stage("verify, versions")
		p.Of(done, total)
	}
	return tables.Check(ctx, o, out)
}
