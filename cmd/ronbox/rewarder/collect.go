package rewarder

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"ronbox/appliance/b3"
	"ronbox/cmd/ronbox/cli"
	"ronbox/engines/fleet/usage"
	registryapi "ronbox/httpapi/wire/registry"
)

// Exit codes of collect, beside the common ones.
const (
	exitMissing = 22
	exitDiffer  = 23
)

// Names in the folder of a collection.
const (
	usageName      = "usage.csv"
	statementsName = "statements"
)

// States of a statement.
const (
	stateOK      = "ok"
	stateMissing = "missing" // not answered, not final, or refused
	stateWithout = "without"
	stateDiffer  = "differ"
)

// collection is a run of collect and its output.
type collection struct {
	Epoch      uint64          `json:"epoch"`
	Start      string          `json:"start"`
	End        string          `json:"end"`
	Genesis    b3.Digest       `json:"genesis"`
	Head       uint64          `json:"head"`
	HeadAt     string          `json:"head_at"`
	PairCap    string          `json:"pair_cap"`
	Statements []stated        `json:"statements"`
	Attested   uint64          `json:"attested"`
	Counted    uint64          `json:"counted"`
	Nodes      []usage.Node    `json:"nodes"`
	Cut        []usage.Pair    `json:"cut"`
	File       string          `json:"file,omitzero"`
	share      usage.Cap       `json:"-"`
	without    map[string]bool `json:"-"`
}

// stated is the statement of one node.
type stated struct {
	Node     string   `json:"node"`
	State    string   `json:"state"`
	Reason   string   `json:"reason,omitzero"`
	Evidence []string `json:"evidence,omitzero"` // files of two statements that differ

	raw    []byte
	parsed usage.Statement
}

func (a app) collectCmd() *cobra.Command {
	var fromFleet bool
	var out, share, genesis string
	var without []string
	cmd := &cobra.Command{
		Use:   "collect EPOCH --from-fleet --out-dir DIR",
		Short: "Collect what the nodes of a fleet received in an epoch, as usage for run",
		Long: `Collect the signed statements of the nodes of a fleet about an epoch, and write
usage.csv for ` + "`ronbox rewarder run`" + `: a row node/NAME,bytes,N for each node that served
others. The statements are kept in DIR/statements. EPOCH is a number: Unix seconds
divided by the length of an epoch. A statement is final a few minutes after the end of
its epoch.

The nodes are those of the last version of the registry before the end of the epoch.
Each statement must be signed by the identity of its node, and be of this registry,
epoch and length. What a node attests about itself does not count. N is the sum of the
bytes that were asked for and of those that the registry has placed; --json tells them
apart.

The node that received bytes attests them. Two signed-in nodes that collude can attest
any number of bytes to each other, and --pair-cap alone bounds what they gain: a pair of
nodes counts for at most that share of the bytes that are attested, and of those that
count. With fewer pairs than that share allows for, each pair counts for at most an
equal part. Several nodes that collude are several pairs: have the signers remove nodes
that you do not trust.

Exit 22: the statement of a node is missing or refused, and usage.csv is not written.
--without leaves the node out; what others received from it still counts. Exit 23: a
node has signed two statements that differ. Both are kept as evidence, and usage.csv is
not written.`,
		Example: "  ronbox rewarder collect 20785 --from-fleet --out-dir epoch-20785\n" +
			"  ronbox rewarder run 20785 epoch-20785/usage.csv --policy policy.json --pool 1000000",
		Args: cli.Exactly(1, "an epoch"),
	}
	f := cmd.Flags()
	f.BoolVar(&fromFleet, "from-fleet", false, "read the statements of the nodes in the registry")
	f.StringVar(&out, "out-dir", "", "`folder` for usage.csv and the statements; it may exist")
	f.StringVar(&share, "pair-cap", usage.DefaultCap.String(), "the largest `share` of one pair of nodes")
	f.StringArrayVar(&without, "without", nil, "leave the statement of a `node` out; may be repeated")
	f.StringVar(&genesis, "genesis", "", "`b3:…` of the registry, if the node has pruned its first version")
	cli.Require(cmd, "from-fleet", "out-dir")
	cmd.RunE = cli.Online(a.App, registryapi.NewClient,
		func(ctx context.Context, c registryapi.Client, args []string) (err error) {
			r := collection{without: map[string]bool{}}
			if r.Epoch, err = parseEpoch(args[0]); err != nil {
				return err
			}
			if !fromFleet {
				return cli.Usage("--from-fleet is the one source")
			}
			if r.share, err = usage.ParseCap(share); err != nil {
				return cli.Usage("--pair-cap: %w", err)
			}
			if genesis != "" {
				if r.Genesis, err = b3.Parse(genesis); err != nil {
					return cli.Usage("--genesis: %w", err)
				}
			}
			for _, node := range without {
				r.without[node] = true
			}
			return a.collectUsage(ctx, c, &r, out)
		})
	return cmd
}

func parseEpoch(text string) (uint64, error) {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n == 0 || n > usage.MaxEpoch || strconv.FormatUint(n, 10) != text {
		return 0, cli.Usage("EPOCH %.20q: must be a number from 1, such as 20785", text)
	}
	return n, nil
}

// collectUsage reads the statements and writes the files. usage.csv is written last.
func (a app) collectUsage(ctx context.Context, c registryapi.Client, r *collection, out string) error {
	v, err := a.version(ctx, c, r)
	if err != nil {
		return err
	}
	a.Say("epoch %d is %s to %s; the nodes are those of version %d, of %s", r.Epoch, r.Start, r.End, r.Head, r.HeadAt)
	if err := a.gather(ctx, v, r); err != nil {
		return err
	}
	if err := r.keep(out); err != nil {
		return err
	}
	var counted []usage.Statement
	var members []string
	var missing, differ []string
	for _, s := range r.Statements {
		members = append(members, s.Node)
		switch s.State {
		case stateOK:
			counted = append(counted, s.parsed)
		case stateMissing:
			missing = append(missing, s.Node+": "+s.Reason)
		case stateDiffer:
			differ = append(differ, s.Node)
		}
	}
	sum := usage.Count(counted, members, r.share)
	r.Attested, r.Nodes, r.Cut = sum.Attested, sum.Nodes, sum.Pairs
	for _, n := range r.Nodes {
		r.Counted += n.Bytes
	}
	if len(differ)+len(missing) == 0 {
		r.File = filepath.Join(out, usageName)
		if err := cli.ReplaceFile(r.File, r.csv(), 0o644); err != nil {
			return err
		}
	}
	switch {
	case len(differ) > 0:
		a.Exit = exitDiffer
		a.Say("two signed statements of one node about the epoch differ: %s; %s was not written; "+
			"show both files to the signers of the registry", strings.Join(differ, ", "), usageName)
	case len(missing) > 0:
		a.Exit = exitMissing
		a.Say("%s; %s was not written; collect again later, or leave the node out with --without",
			strings.Join(missing, "; "), usageName)
	}
	return a.Show(r, r.table)
}

// csv returns the file that run takes.
func (r *collection) csv() []byte {
	var b bytes.Buffer
	b.WriteString("actor,metric,qty\n")
	for _, n := range r.Nodes {
		if n.Bytes > 0 {
			fmt.Fprintf(&b, "%s,bytes,%d\n", n.Node, n.Bytes)
		}
	}
	return b.Bytes()
}

// keep writes the statements into the folder, and removes an older usage.csv. A statement that
// differs from one that an earlier collection has kept is written beside it.
func (r *collection) keep(out string) error {
	folder := filepath.Join(out, statementsName)
	err := os.MkdirAll(folder, 0o755)
	if err == nil {
		err = os.Remove(filepath.Join(out, usageName))
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for i := range r.Statements {
		s := &r.Statements[i]
		if s.raw == nil {
			continue
		}
		file := filepath.Join(folder, strings.TrimPrefix(s.Node, "node/")+".json")
		had, err := cli.ReadFile(file, usage.MaxSize)
		switch {
		case err == nil && bytes.Equal(had, s.raw):
			continue
		case err == nil && s.contradicts(had):
			other := strings.TrimSuffix(file, ".json") + "." + b3.Sum(s.raw).String()[3:19] + ".json"
			s.State, s.Evidence, file = stateDiffer, []string{file, other}, other
			s.Reason = "it has signed another statement of this epoch before"
		case err == nil:
			return cli.Fail(cli.ExitFailed, "folder_in_use", "choose a new folder",
				"%s is no statement of %s about epoch %d", file, s.Node, r.Epoch)
		case !errors.Is(err, fs.ErrNotExist):
			return err
		}
		if err := cli.ReplaceFile(file, s.raw, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// contradicts reports whether had is a statement of the same node about the same epoch, signed by
// the same key.
func (s *stated) contradicts(had []byte) bool {
	key, ok := keyOf(s.parsed.Identity)
	other, err := usage.Open(had, key)
	return ok && err == nil && other.Check(usage.Want{
		Genesis: s.parsed.Genesis, Node: s.parsed.Node, Identity: s.parsed.Identity,
		Epoch: s.parsed.Epoch, Length: s.parsed.Length,
	}) == nil
}

func (r *collection) table(t cli.Table) {
	t.Row("epoch", fmt.Sprintf("%d, %s to %s", r.Epoch, r.Start, r.End))
	t.Row("registry", fmt.Sprintf("version %d of %s", r.Head, r.HeadAt))
	for _, s := range r.Statements {
		t.Row("statement", strings.TrimSpace(s.Node+" "+s.State+" "+s.Reason))
		for _, file := range s.Evidence {
			t.Row("evidence", file)
		}
	}
	t.Row("attested", r.Attested)
	t.Row("counted", fmt.Sprintf("%d, with at most %s for a pair of nodes", r.Counted, r.PairCap))
	for _, p := range r.Cut {
		t.Row("cut", fmt.Sprintf("%s and %s: %d of %d", p.A, p.B, p.Counted, p.Attested))
	}
	for _, n := range slices.SortedFunc(slices.Values(r.Nodes), func(a, b usage.Node) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), strings.Compare(a.Node, b.Node))
	}) {
		t.Row(n.Node, fmt.Sprintf("%d of %d asked for and %d placed", n.Bytes, n.Asked, n.Placed))
	}
	t.Opt("written", r.File)
}
