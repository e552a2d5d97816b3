package registry

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"

	"ronbox/cmd/ronbox/cli"
	"ronbox/engines/registry/record"
	registryapi "ronbox/httpapi/wire/registry"
)

func (a app) proposeCmd() *cobra.Command {
	var want string
	cmd := &cobra.Command{
		Use:     "propose FILE",
		Example: `  echo '{"schema_version":"1.0.0","version":10,"mode":"delta","put":[],"remove":["a"]}' | ronbox registry propose -`,
		Short:   "Send a payload or a draft of one; signers then approve it",
		Long: `Send a payload or a draft of one; "-" is stdin. A draft has at least schema_version,
version, and items, or mode "delta" with put and remove. The node fills in the other
members. The same payload returns the live proposal.`,
		Args: cli.Exactly(1, "one payload file"),
	}
	cmd.Flags().StringVar(&want, "payload-b3", "", "the `hash` that the payload must have")
	cmd.RunE = a.online(func(ctx context.Context, c registryapi.Client, args []string) error {
		raw, err := a.ReadInput(args[0], maxBody)
		if err != nil {
			return err
		}
		if _, err := record.Canonical(raw); err != nil {
			return fmt.Errorf("%s: %w", args[0], err)
		}
		return shown(a, proposedTable)(c.Propose(ctx, raw, want))
	})
	return cmd
}

func proposedTable(t cli.Table, p registryapi.Proposed) {
	t.Rows("proposal", p.ID, "payload", p.PayloadB3, "expires", p.ExpiresAt, "next",
		"ronbox registry approve "+p.ID+" --key-file KEY")
}

// oneProposal checks that the argument is the id of a proposal.
func oneProposal(cmd *cobra.Command, args []string) error {
	if len(args) == 1 && !strings.HasPrefix(args[0], "p_") {
		return cli.Usage("%q is not a proposal: want p_…, as `ronbox registry proposals` lists them", args[0])
	}
	return cli.Exactly(1, "one proposal id")(cmd, args)
}

func (a app) approveCmd() *cobra.Command {
	var f approveFlags
	cmd := &cobra.Command{
		Use:     "approve ID (--key-file KEY | --approval FILE)",
		Example: `  ronbox registry approve p_01J… --key-file alice.key`,
		Short:   "Approve a proposal, by signing here or with a signature made elsewhere",
		Long: `Approve a proposal. With --key-file its payload is fetched, checked, and shown with the
descriptors that it replaces; its hash, computed here, is signed. KEY.signed stops the
key from signing a second payload for one version. With --approval the output of
` + "`ronbox registry sign`" + ` is sent.`,
		Args: oneProposal,
	}
	cmd.Flags().StringArrayVar(&f.keys, "key-file", nil, "key `file` to sign with")
	cmd.Flags().StringVar(&f.approval, "approval", "", "`file` that holds a signed approval")
	cmd.Flags().BoolVar(&f.all, "all", false, "show every change, not the first three")
	cmd.Flags().BoolVar(&f.force, "force", false, "sign although another payload of that version was signed")
	cmd.MarkFlagsMutuallyExclusive("key-file", "approval")
	cmd.MarkFlagsOneRequired("key-file", "approval")
	cmd.RunE = a.online(func(ctx context.Context, c registryapi.Client, args []string) error {
		signed, err := a.approvals(ctx, c, args[0], f)
		if err != nil {
			return err
		}
		return a.approve(ctx, c, args[0], signed)
	})
	return cmd
}

type approveFlags struct {
	keys       []string
	approval   string
	all, force bool
}

// baseOf reads the base of p if it is HEAD. p names HEAD by its hash, which the answers of the
// node must fit.
func (a app) baseOf(ctx context.Context, c registryapi.Client,
	p *record.Payload) (*record.Items, *record.SignerSet, error) {
	head, err := c.Head(ctx)
	if err != nil || head.Version+1 != p.Version || head.PayloadB3 != p.PrevHash {
		return nil, nil, err // it builds on another proposal, or is stale already
	}
	base, err := fetchBase(ctx, c, head)
	if err != nil {
		return nil, nil, err
	}
	if _, err := p.Check(base); err != nil {
		return nil, nil, inconsistent("the proposal: %w", err)
	}
	return &base.Items, base.Signers, nil
}

// errSpelling is the error of a payload in a form that is not canonical: its hash is of other
// bytes.
var errSpelling = errors.New("its bytes are not canonical")

// approvals signs the proposal's payload with every key, or reads one approval.
func (a app) approvals(ctx context.Context, c registryapi.Client, id string,
	f approveFlags) ([]registryapi.Approval, error) {
	if f.approval != "" {
		ap, err := a.readApproval(f.approval)
		return []registryapi.Approval{ap}, err
	}
	keys, err := a.readKeys(f.keys)
	if err != nil {
		return nil, err
	}
	raw, err := c.ProposalPayload(ctx, id)
	if err != nil {
		return nil, err
	}
	p, err := record.ParsePayload(raw)
	if err != nil || !bytes.Equal(p.Bytes(), raw) {
		return nil, inconsistent("proposal %s is not a payload in canonical form: %w", id, cmp.Or(err, errSpelling))
	}
	items, signers, err := a.baseOf(ctx, c, p)
	if err != nil {
		return nil, err
	}
	a.showPayload(p, items, signers, f.all)
	return a.signWith(keys, p, f.force)
}

func (a app) approve(ctx context.Context, c registryapi.Client, id string, signed []registryapi.Approval) error {
	var last registryapi.Approved
	for _, s := range signed {
		got, err := c.Approve(ctx, id, s)
		if err != nil {
			return fmt.Errorf("approve as %s: %w", s.SignerID, err)
		}
		last = got
	}
	return a.Show(last, func(t cli.Table) {
		t.Row("status", last.Status)
		t.Row("approvals", fmt.Sprintf("%d of %d needed", last.Approvals, last.Quorum.M))
		if last.Approvals >= last.Quorum.M {
			t.Row("next", "ronbox registry commit "+id)
		}
	})
}

func (a app) readApproval(path string) (ap registryapi.Approval, err error) {
	raw, err := a.ReadInput(path, 64<<10)
	if err != nil {
		return ap, err
	}
	if err := json.Unmarshal(raw, &ap, json.RejectUnknownMembers(true)); err != nil {
		return ap, cli.Fail(cli.ExitFailed, "malformed", "make one with `ronbox registry sign`",
			"%s is not an approval: %w", path, err)
	}
	return ap, nil
}

func (a app) commitCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "commit ID",
		Short: "Make an approved proposal the next version; a repeat gets the same answer",
		Long: `Make an approved proposal the next version. Until enough signers have approved it, the
answer is 422 quorum. If the answer is lost, send it again.`,
		Example: `  ronbox registry commit p_01JD3V9T5E8Q2X7RZ4M6K0ABCD`,
		Args:    oneProposal,
		RunE: a.online(func(ctx context.Context, c registryapi.Client, args []string) error {
			done, replayed, err := c.Commit(ctx, args[0])
			if err != nil {
				return err
			}
			if replayed {
				a.Say("it was committed before")
			}
			return a.Show(done, func(t cli.Table) { committedTable(t, done) })
		}),
	}
}

func committedTable(t cli.Table, c registryapi.Committed) {
	t.Rows("version", c.Version, "payload", c.PayloadB3, "hash", c.Hash, "committed", c.CommittedAt)
}

func (a app) withdrawCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "withdraw ID",
		Short: "End a proposal, as its proposer or with node.admin",
		Long: `End a proposal before it is committed, as its proposer or with node.admin. Its approvals
become void. A proposal also ends when it expires.`,
		Example: `  ronbox registry withdraw p_01JD3V9T5E8Q2X7RZ4M6K0ABCD --json`,
		Args:    oneProposal,
		RunE: a.online(func(ctx context.Context, c registryapi.Client, args []string) error {
			if err := c.Withdraw(ctx, args[0]); err != nil {
				return err
			}
			type withdrawn struct {
				ProposalID string `json:"proposal_id"`
				State      string `json:"state"`
			}
			return a.Show(withdrawn{args[0], "withdrawn"}, func(t cli.Table) { t.Row(args[0], "withdrawn") })
		}),
	}
}

func (a app) proposalsCmd() *cobra.Command {
	var payload bool
	cmd := &cobra.Command{
		Use:   "proposals [ID]",
		Short: "List the live proposals, or show one, or print the bytes that its signers sign",
		Long: `List the live proposals, or show one: its version, its base, its approvals. With --payload
the bytes to sign are printed, for ` + "`ronbox registry sign`" + `.`,
		Example: `  ronbox registry proposals p_01J… --payload > payload.json   # for a signer away from the node`,
		Args:    cli.AtMost(1, "at most one proposal id"),
	}
	cmd.Flags().BoolVar(&payload, "payload", false, "print the payload of proposal ID, nothing else")
	cmd.RunE = a.online(func(ctx context.Context, c registryapi.Client, args []string) error {
		if len(args) > 0 {
			if err := oneProposal(cmd, args); err != nil {
				return err
			}
		}
		switch {
		case len(args) == 0 && payload:
			return cli.Usage("--payload wants a proposal id")
		case len(args) == 0:
			return shown(a, proposalsTable)(allProposals(ctx, c))
		case payload:
			return a.printBytes(c.ProposalPayload(ctx, args[0]))
		}
		return shown(a, proposalTable)(c.Proposal(ctx, args[0]))
	})
	return cmd
}

func proposalsTable(t cli.Table, list registryapi.ProposalList) {
	if len(list.Proposals) == 0 {
		t.Row("no live proposals")
		return
	}
	t.Row("ID", "VERSION", "STATE", "APPROVALS", "EXPIRES", "PAYLOAD")
	for _, p := range list.Proposals {
		t.Row(p.ID, p.Version, p.State, quorumText(p), p.ExpiresAt, cli.ShortHash(p.PayloadB3.String()))
	}
}

// maxPages bounds the number of pages: the node keeps 256 live proposals in pages of 100.
const maxPages = 64

func allProposals(ctx context.Context, c registryapi.Client) (registryapi.ProposalList, error) {
	all := registryapi.ProposalList{Proposals: []registryapi.Proposal{}}
	for range maxPages {
		page, err := c.Proposals(ctx, all.Next, 0)
		if err != nil {
			return all, err
		}
		all.Proposals = append(all.Proposals, page.Proposals...)
		all.Next = page.Next
		if page.Next == "" {
			return all, nil
		}
	}
	return all, nil // Next is the cursor of the rest
}

func proposalTable(t cli.Table, p registryapi.Proposal) {
	t.Rows("proposal", p.ID, "state", p.State, "version", p.Version, "payload", p.PayloadB3)
	if p.Quorum == nil || p.ItemsCount == nil {
		t.Row("ended", p.EndedAt)
		return
	}
	t.Rows("kind", p.Kind+", "+p.Mode, "builds on", p.PrevHash, "items", *p.ItemsCount, "approvals", quorumText(p))
	for _, ap := range p.Approvals {
		t.Row("approved by", ap.SignerID+" at "+ap.SignedAt)
	}
	t.Rows("created", p.CreatedAt, "expires", p.ExpiresAt)
}

func quorumText(p registryapi.Proposal) string {
	if p.Quorum == nil {
		return ""
	}
	return fmt.Sprintf("%d of %d needed", len(p.Approvals), p.Quorum.M)
}
