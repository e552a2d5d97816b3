package registry

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"golang.org/x/mod/sumdb/tlog"

	"ronbox/cmd/ronbox/cli"
	"ronbox/engines/registry/checkpoint"
	registryapi "ronbox/httpapi/wire/registry"
)

const auditFormat = "ronbox-registry-audit-v1"

// auditState is the state of an auditor between two audits: the trusted key, and the last proven
// checkpoint.
type auditState struct {
	Format string `json:"format"`
	LogKey string `json:"log_key"`
	Note   string `json:"note"`
	At     string `json:"at"`
	Looks  uint64 `json:"looks"`
}

// auditedDoc is the output of audit-node.
type auditedDoc struct {
	OK      bool   `json:"ok"`
	First   bool   `json:"first"`            // no earlier checkpoint
	Trusted uint64 `json:"trusted,omitzero"` // size of the earlier checkpoint
	Size    uint64 `json:"size"`
	Latest  uint64 `json:"latest,omitzero"` // size of the latest checkpoint, if the policy is not met for it yet
	Root    string `json:"root,omitzero"`
	Signed  string `json:"signed,omitzero"` // time of the node's cosignature
	Looks   uint64 `json:"looks"`
	Problem string `json:"problem,omitzero"`
}

func (a app) auditNodeCmd() *cobra.Command {
	var state, logKey string
	var f judgeFlags
	cmd := &cobra.Command{
		Use:   "audit-node --state FILE [--log-key VKEY]",
		Short: "Check that the log of a node has only grown since the last audit",
		Long: `Check that the log of a node has only grown since the last audit. Run it from time to
time on another machine. The first audit takes the log key, which
` + "`ronbox registry signers show`" + ` lists, and keeps the checkpoint in FILE. Each later
audit demands a proof that the log has only grown since. Exit 3: it has not, or the
checkpoint is not signed by that key; FILE does not change.

With --policy the newest checkpoint that witnesses have cosigned is audited and kept. It
must cover the kept one (else exit 20), and the latest one must have grown from it: the
node shows a new checkpoint to the witnesses within a minute. With --max-age the audited
one must not be older (else exit 24), which finds a node that is frozen or shows an old
state.`,
		Example: `  ronbox --url https://node.example registry audit-node --state node.audit --log-key registry.example/main+1a2b3c4d+AT…`,
	}
	cmd.Flags().StringVar(&state, "state", "", "`file` that keeps the last checkpoint that was proven")
	cmd.Flags().StringVar(&logKey, "log-key", "", "public key of the log, a C2SP `vkey`; for the first audit")
	f.add(cmd)
	cmd.Args = f.wants(0, "no arguments")
	cli.Require(cmd, "state")
	cmd.RunE = a.online(func(ctx context.Context, c registryapi.Client, args []string) error {
		f.take(args, 0)
		return a.auditNode(ctx, c, state, logKey, f)
	})
	return cmd
}

// provingNode is the part of registryapi.Client that an audit uses.
type provingNode interface {
	checkedNode
	ConsistencyProof(ctx context.Context, from, to uint64) (registryapi.ConsistencyProof, error)
}

func (a app) auditNode(ctx context.Context, node provingNode, file, logKey string, f judgeFlags) error {
	var was auditState
	err := cli.ReadAudit(file, &was,
		func() bool { return was.Format == auditFormat && was.Looks > 0 && was.LogKey != "" })
	if err != nil {
		return err
	}
	if was.LogKey, err = trustedKey(was, logKey); err != nil {
		return err
	}
	doc := auditedDoc{First: was.Looks == 0, Looks: was.Looks}
	seen, bad, err := a.lookAt(ctx, node, was, f, &doc)
	if err != nil {
		return err
	}
	doc.OK = bad == nil
	if doc.OK {
		doc.Looks++
		if err := cli.WriteAudit(file,
			auditState{auditFormat, was.LogKey, string(seen.Note), cli.FormatTime(a.Now()), doc.Looks}); err != nil {
			return err
		}
	} else {
		doc.Problem = bad.Error()
	}
	return a.showJudged(doc, doc.Problem, "", asFault(bad), func(t cli.Table) { auditedTable(t, doc) })
}

// lookAt audits the node and returns the checkpoint to keep: the latest, or under a policy the
// newest one that meets it. bad is the fault that was found; err is returned if nothing could be
// checked.
func (a app) lookAt(ctx context.Context, node provingNode, was auditState, f judgeFlags,
	doc *auditedDoc) (seen checkpoint.Signed, bad, err error) {
	keys, err := logKeys(was.LogKey)
	if err != nil {
		return seen, nil, err
	}
	var old checkpoint.Signed // empty at the first audit
	if was.Looks > 0 {
		if old, err = keys.Open([]byte(was.Note)); err != nil {
			return seen, nil, fmt.Errorf("the checkpoint of the state: %w", err)
		}
	}
	note, err := node.Checkpoint(ctx)
	if err != nil {
		return seen, nil, err
	}
	latest, bad := keys.Open(note)
	if bad != nil {
		return seen, bad, nil
	}
	doc.Trusted = old.Size
	doc.seen(latest)
	if bad, err = checkGrowth(ctx, node, old, latest); bad != nil || err != nil || !f.asked() {
		return latest, bad, err
	}
	seen, err = a.judgeNode(ctx, f, node, keys, max(old.Size, 1))
	if fault := asFault(err); fault != nil {
		return latest, fault, nil
	} else if err != nil {
		return latest, nil, err
	}
	doc.seen(seen)
	if seen.Size < latest.Size {
		doc.Latest = latest.Size
		bad, err = checkGrowth(ctx, node, seen, latest)
	} else {
		bad, err = checkGrowth(ctx, node, latest, seen)
	}
	return seen, bad, err
}

// seen sets the checkpoint of the audit.
func (d *auditedDoc) seen(s checkpoint.Signed) {
	d.Size, d.Root, d.Signed = s.Size, s.Root.String(), ""
	if !s.At.IsZero() {
		d.Signed = cli.FormatTime(s.At)
	}
}

// trustedKey returns the key of the state. The first audit takes the given one.
func trustedKey(was auditState, given string) (string, error) {
	switch {
	case was.LogKey == "" && given == "":
		return "", cli.Usage("want --log-key for the first audit: a log key that `ronbox registry signers show` lists")
	case was.LogKey == "" || given == was.LogKey:
		return given, nil
	case given != "":
		return "", cli.Usage("--log-key is not the key that the state trusts; use another file for another key")
	}
	return was.LogKey, nil
}

// checkGrowth asks for the proof that the log of old has only grown into that of now. bad is the
// fault that was found; err is returned if nothing could be checked.
func checkGrowth(ctx context.Context, node provingNode, old, now checkpoint.Signed) (bad, err error) {
	switch {
	case now.Size < old.Size:
		return fmt.Errorf("the log has %d versions, it had %d before: versions are lost", now.Size,
			old.Size), nil
	case now.Size == old.Size && now.Root != old.Root:
		return fmt.Errorf("the log has another root for %d versions than it had before", old.Size), nil
	case now.Size == old.Size || old.Size == 0:
		return nil, nil
	}
	p, err := node.ConsistencyProof(ctx, old.Size, now.Size)
	if err != nil {
		return cli.NoProof(err)
	}
	bad = tlog.CheckTree(p.Hashes, int64(now.Size), now.Root, int64(old.Size), old.Root)
	if bad != nil {
		bad = fmt.Errorf("the proof of the node is invalid: %w", bad)
	}
	return bad, nil
}

func auditedTable(t cli.Table, d auditedDoc) {
	switch {
	case !d.OK:
		t.Row(cli.Bad("BAD"), d.Problem)
		t.Row("trusted", fmt.Sprintf("%d versions", d.Trusted))
		return
	case d.First:
		t.Row("trusted", "the first audit: every later one is compared with it")
	default:
		t.Row(cli.OK("sound"),
			fmt.Sprintf("the log has only grown since version %d, as the node has proven", d.Trusted))
	}
	if d.Latest > 0 {
		t.Row("latest", fmt.Sprintf("%d versions; the policy is not met for it yet", d.Latest))
	}
	t.Rows("versions", d.Size, "root", d.Root, "signed", d.Signed, "looks", d.Looks)
}
