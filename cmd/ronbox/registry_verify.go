package main

import (
	"context"
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/engines/registry"
	"ronbox/engines/registry/rverify"
	"ronbox/store"
)

// verifyDoc is what registry verify prints.
type verifyDoc = rverify.Report

func (a *app) registryVerifyCmd() *cobra.Command {
	var file, genesis string
	cmd := &cobra.Command{
		Use:     "verify --db FILE --genesis b3:…",
		Example: `  ronbox registry verify --db snaps/ronbox-….db --genesis b3:4487…`,
		Short:   "Check a whole log with nothing but its genesis hash: signatures, quorums, chains, roots",
		Long: `Check a whole log with nothing but its genesis hash: every approval and every quorum
by the signer set in force at its version, the payload, artifact and audit chains, and
the item root of every version. FILE is a snapshot or a stopped node's database; no key,
no network and no trust in the node is needed.

Exit 0: sound. Exit 3: bad; the output names which: signature, quorum, chain, tree or
incomplete.`,
		Args: exactly(0, "no arguments"),
	}
	cmd.Flags().StringVar(&file, "db", "", "database `file`")
	cmd.Flags().StringVar(&genesis, "genesis", "", "payload hash of version 1")
	_ = cmd.MarkFlagRequired("db") // fails for a flag that is not there only
	_ = cmd.MarkFlagRequired("genesis")
	cmd.RunE = a.verb(func(ctx context.Context, _ []string) error { return a.registryVerify(ctx, file, genesis) })
	return cmd
}

// genesisArg gives the options of a check that holds the log against a genesis hash, or, when empty, against itself.
func genesisArg(text string) (rverify.Options, error) {
	o := rverify.Options{Fan: flow.Fan, Jobs: runtime.GOMAXPROCS(0)}
	if text == "" {
		return o, nil
	}
	var err error
	if o.Genesis, err = b3.Parse(text); err != nil {
		return o, usage("--genesis: %w", err)
	}
	if o.Genesis.IsZero() { // it would stand for any genesis
		return o, usage("--genesis: no payload has the hash %s", text)
	}
	return o, nil
}

func (a *app) registryVerify(ctx context.Context, file, genesis string) error {
	o, err := genesisArg(genesis)
	if err != nil {
		return err
	}
	p := a.progress(countUnit)
	p.begin("verify, versions")
	o.Progress = func(done, total uint64) { p.at(int64(done), int64(total)) }
	doc, err := verifyFile(ctx, file, o)
	p.end()
	if err != nil {
		return err
	}
	err = a.show(doc, func(t table) { verifyTable(t, doc) })
	if err != nil || doc.OK {
		return err
	}
	return a.found(doc.Problem.Error(), string(doc.Problem.Kind))
}

func verifyFile(ctx context.Context, file string, o rverify.Options) (doc verifyDoc, err error) {
	if err := regular(file); err != nil {
		return doc, err
	}
	r, err := store.OpenReader(file)
	if err != nil {
		return doc, err
	}
	err = r.View(ctx, func(rd store.Reader) (err error) {
		doc, err = rverify.Verify(ctx, registry.NewLog(rd), o)
		return err
	})
	if closeErr := r.Close(); err == nil {
		err = closeErr
	}
	return doc, err
}

func verifyTable(t table, d verifyDoc) {
	t.row("versions", d.Versions)
	t.row("approvals", d.Approvals)
	t.row("audit records", d.AuditRecords)
	t.row("head", fmt.Sprintf("version %d, %s", d.Head.Version, d.Head.PayloadB3))
	if d.OK {
		t.row("sound", "every signature, quorum, chain and root holds")
		return
	}
	t.row("BAD", d.Problem.Kind)
}
