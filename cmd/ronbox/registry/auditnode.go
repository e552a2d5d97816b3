package registry

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"golang.org/x/mod/sumdb/tlog"

	"ronbox/cmd/ronbox/cli"
	"ronbox/engines/registry/checkpoint"
	registryapi "ronbox/httpapi/registry"
)

const auditFormat = "ronbox-registry-audit-v1"

// auditState is kept by an auditor between two audits: the key that is trusted, and the last checkpoint that was proven.
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
	First   bool   `json:"first"`            // no checkpoint was known before
	Trusted uint64 `json:"trusted,omitzero"` // size that was known before
	Size    uint64 `json:"size"`
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
		Short: "Hold a node to what it signed before: its log may only have grown",
		Long: `Hold a node to what it signed before, from time to time and away from it. The first look
takes the log key, which ` + "`ronbox registry signers show`" + ` lists, and keeps the checkpoint
in FILE; each later one demands a proof that the log has only grown since. Exit 3: it has
not, or the checkpoint is not signed by that key; FILE is left as it was.

With --policy a checkpoint that witnesses have cosigned must cover the latest one (else
exit 20): the node shows it to them within a minute. With --max-age it must not be
older (else exit 24), which finds a node that is frozen or shows an old state.`,
		Example: `  ronbox --url https://node.example registry audit-node --state node.audit --log-key registry.example/main+1a2b3c4d+AT…`,
	}
	cmd.Flags().StringVar(&state, "state", "", "`file` that keeps the last checkpoint that was proven")
	cmd.Flags().StringVar(&logKey, "log-key", "", "public key of the log, a C2SP vkey; for the first look")
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
	err := cli.ReadAudit(file, &was, func() bool { return was.Format == auditFormat && was.Looks > 0 && was.LogKey != "" })
	if err != nil {
		return err
	}
	if was.LogKey, err = trustedKey(was, logKey); err != nil {
		return err
	}
	keys, err := logKeys(was.LogKey)
	if err != nil {
		return err
	}
	note, err := node.Checkpoint(ctx)
	if err != nil {
		return err
	}
	doc := auditedDoc{First: was.Looks == 0, Looks: was.Looks}
	now, bad := keys.Open(note)
	if bad == nil {
		doc.Size, doc.Root = now.Size, now.Root.String()
		if !now.At.IsZero() {
			doc.Signed = cli.FormatTime(now.At)
		}
		if doc.Trusted, bad, err = checkGrowth(ctx, node, keys, was, now); err != nil {
			return err
		}
	}
	var fault *checkpointFault
	if bad == nil && f.asked() {
		_, err := a.judgeNode(ctx, f, node, keys, now.Size)
		if fault = asFault(err); fault == nil && err != nil {
			return err
		}
		if fault != nil {
			bad = fault
		}
	}
	if doc.OK = bad == nil; doc.OK {
		doc.Looks++
		if err := cli.WriteAudit(file, auditState{auditFormat, was.LogKey, string(note), cli.FormatTime(a.Now()), doc.Looks}); err != nil {
			return err
		}
	} else {
		doc.Problem = bad.Error()
	}
	return a.showJudged(doc, doc.Problem, "", fault, func(t cli.Table) { auditedTable(t, doc) })
}

// trustedKey is the key of the state; the first look takes the one that is given.
func trustedKey(was auditState, given string) (string, error) {
	switch {
	case was.LogKey == "" && given == "":
		return "", cli.Usage("want --log-key for the first look: a log key that `ronbox registry signers show` lists")
	case was.LogKey == "" || given == was.LogKey:
		return given, nil
	case given != "":
		return "", cli.Usage("--log-key is not the key that the state trusts; another file begins anew")
	}
	return was.LogKey, nil
}

// checkGrowth asks for the proof that the log of was has only grown into that of now. bad is the fault that was found; err
// says that nothing could be checked.
func checkGrowth(ctx context.Context, node provingNode, keys checkpoint.Keys, was auditState, now checkpoint.Signed) (from uint64, bad, err error) {
	if was.Looks == 0 {
		return 0, nil, nil
	}
	old, err := keys.Open([]byte(was.Note))
	if err != nil {
		return 0, nil, fmt.Errorf("the checkpoint of the state: %w", err)
	}
	switch {
	case now.Size < old.Size:
		return old.Size, fmt.Errorf("the log has %d versions, %d were there before: what was done is gone", now.Size, old.Size), nil
	case now.Size == old.Size && now.Root != old.Root:
		return old.Size, fmt.Errorf("the log has another root for %d versions than it had before", old.Size), nil
	case now.Size == old.Size:
		return old.Size, nil, nil
	}
	p, err := node.ConsistencyProof(ctx, old.Size, now.Size)
	if err != nil {
		bad, err = cli.NoProof(err)
		return old.Size, bad, err
	}
	if bad = tlog.CheckTree(p.Hashes, int64(now.Size), now.Root, int64(old.Size), old.Root); bad != nil {
		bad = fmt.Errorf("the node's proof does not hold: %w", bad)
	}
	return old.Size, bad, nil
}

func auditedTable(t cli.Table, d auditedDoc) {
	switch {
	case !d.OK:
		t.Row("BAD", d.Problem)
		t.Row("trusted", fmt.Sprintf("%d versions", d.Trusted))
		return
	case d.First:
		t.Row("trusted", "the first look: every later one is held against it")
	default:
		t.Row("sound", fmt.Sprintf("it has only grown since version %d, as the node has proven", d.Trusted))
	}
	t.Rows("versions", d.Size, "root", d.Root, "signed", d.Signed, "looks", d.Looks)
}
