package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"

	"ronbox/engines/registry/record"
	"ronbox/httpapi/client"
	"ronbox/httpapi/wire"
)

// maxPayload bounds a payload file: more would not fit a request.
const maxPayload = maxBody

func (a *app) proposeCmd() *cobra.Command {
	var want string
	cmd := &cobra.Command{
		Use:     "propose FILE",
		Example: `  echo '{"schema_version":"1.0.0","version":10,"mode":"delta","put":[],"remove":["a"]}' | ronbox registry propose -`,
		Short:   "Send a payload or a draft of one; signers then approve it",
		Long: `Send a payload or a draft of one; "-" is stdin. A draft holds at least schema_version,
version, and items, or mode "delta" with put and remove; the node fills in the rest.
The same payload gives the proposal that lives already.`,
		Args: exactly(1, "one payload file"),
	}
	cmd.Flags().StringVar(&want, "payload-b3", "", "the hash that the payload must have")
	cmd.RunE = a.online(func(ctx context.Context, c *client.Client, args []string) error {
		raw, err := a.readInput(args[0], maxPayload)
		if err != nil {
			return err
		}
		if _, err := record.Canonical(raw); err != nil {
			return fmt.Errorf("%s: %w", args[0], err)
		}
		p, err := c.Propose(ctx, raw, want)
		if err != nil {
			return err
		}
		return a.show(p, func(t table) {
			t.row("proposal", p.ProposalID)
			t.row("payload", p.PayloadB3)
			t.row("expires", p.ExpiresAt)
			t.row("next", "ronbox registry approve "+p.ProposalID+" --key KEY")
		})
	})
	return cmd
}

func (a *app) approveCmd() *cobra.Command {
	var keys []string
	var approval string
	cmd := &cobra.Command{
		Use: "approve ID (--key KEY | --approval FILE)",
		Example: `  ronbox registry approve p_01J… --key alice.key
  ronbox registry approve p_01J… --approval bob.approval`,
		Short: "Approve a proposal, by signing here or with a signature made elsewhere",
		Long: `Approve a proposal, by signing here or with a signature made elsewhere.

With --key the payload is fetched, checked and shown, and its hash, computed here, signed.
With --approval the file that ` + "`ronbox registry sign`" + ` wrote is sent.`,
		Args: exactly(1, "one proposal id"),
	}
	cmd.Flags().StringArrayVar(&keys, "key", nil, "key `file` to sign with")
	cmd.Flags().StringVar(&approval, "approval", "", "`file` that holds a signed approval")
	cmd.MarkFlagsMutuallyExclusive("key", "approval")
	cmd.MarkFlagsOneRequired("key", "approval")
	cmd.RunE = a.online(func(ctx context.Context, c *client.Client, args []string) error {
		signed, err := a.approvals(ctx, c, args[0], keys, approval)
		if err != nil {
			return err
		}
		return a.approve(ctx, c, args[0], signed)
	})
	return cmd
}

// errSpelling is the fault of a payload whose bytes are not those that its hash is taken of.
var errSpelling = errors.New("it is spelled otherwise")

// approvals signs the proposal's payload with every key, or reads one approval.
func (a *app) approvals(ctx context.Context, c *client.Client, id string, keyFiles []string, file string) ([]wire.Approval, error) {
	if file != "" {
		ap, err := a.readApproval(file)
		return []wire.Approval{ap}, err
	}
	keys, err := a.readKeys(keyFiles)
	if err != nil {
		return nil, err
	}
	raw, err := c.ProposalPayload(ctx, id)
	if err != nil {
		return nil, err
	}
	p, err := record.ParsePayload(raw)
	if err != nil || !bytes.Equal(p.Bytes(), raw) {
		return nil, distrust("proposal %s is no payload in canonical form: %w", id, cmp.Or(err, errSpelling))
	}
	a.sayPayload(p)
	var out []wire.Approval
	for _, k := range keys {
		out = append(out, approvalBody(k.Sign(p.B3(), a.now())))
	}
	return out, nil
}

func (a *app) approve(ctx context.Context, c *client.Client, id string, signed []wire.Approval) error {
	var last wire.Approved
	for _, s := range signed {
		got, err := c.Approve(ctx, id, s)
		if err != nil {
			return fmt.Errorf("approve as %s: %w", s.SignerID, err)
		}
		last = got
	}
	return a.show(last, func(t table) {
		t.row("status", last.Status)
		t.row("approvals", fmt.Sprintf("%d of %d needed", last.Approvals, last.Quorum.M))
		if last.Approvals >= last.Quorum.M {
			t.row("next", "ronbox registry commit "+id)
		}
	})
}

func (a *app) readApproval(path string) (ap wire.Approval, err error) {
	raw, err := a.readInput(path, 64<<10)
	if err != nil {
		return ap, err
	}
	if err := json.Unmarshal(raw, &ap, json.RejectUnknownMembers(true)); err != nil {
		return ap, failed(exitFailed, "malformed", "make one with `ronbox registry sign`", "%s is no approval: %w", path, err)
	}
	return ap, nil
}

func (a *app) commitCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "commit ID",
		Short: "Make an approved proposal the next version; a repeat gives the same answer",
		Long: `Make an approved proposal the next version. Until enough signers have approved it the
answer is 422 quorum; a repeat of a commit that was made gives the same answer, so that
one whose answer was lost can be sent again.`,
		Example: `  ronbox registry commit p_01JD3V9T5E8Q2X7RZ4M6K0ABCD
  ronbox registry commit p_01JD3V9T5E8Q2X7RZ4M6K0ABCD --json`,
		Args: exactly(1, "one proposal id"),
		RunE: a.online(func(ctx context.Context, c *client.Client, args []string) error {
			done, replayed, err := c.Commit(ctx, args[0])
			if err != nil {
				return err
			}
			if replayed {
				a.say("it was committed before")
			}
			return a.show(done, func(t table) { committedTable(t, done) })
		}),
	}
}

func committedTable(t table, c wire.Committed) {
	t.row("version", c.Version)
	t.row("payload", c.PayloadB3)
	t.row("hash", c.Hash)
	t.row("committed", c.CommittedAt)
}

type withdrawn struct {
	ProposalID string `json:"proposal_id"`
	State      string `json:"state"`
}

func (a *app) withdrawCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "withdraw ID",
		Short: "End a proposal; only who proposed it may",
		Long: `End a proposal before it is committed; only who proposed it may, or node.admin. Its
approvals are void. A proposal also ends by itself when it expires.`,
		Example: `  ronbox registry withdraw p_01JD3V9T5E8Q2X7RZ4M6K0ABCD --json`,
		Args:    exactly(1, "one proposal id"),
		RunE: a.online(func(ctx context.Context, c *client.Client, args []string) error {
			if err := c.Withdraw(ctx, args[0]); err != nil {
				return err
			}
			return a.show(withdrawn{args[0], "withdrawn"}, func(t table) { t.row(args[0], "withdrawn") })
		}),
	}
}

func (a *app) proposalsCmd() *cobra.Command {
	var payload bool
	cmd := &cobra.Command{
		Use:   "proposals [ID]",
		Short: "List the live proposals, or show one, or print the bytes that its signers sign",
		Long: `List the live proposals, or show one: its version, what it builds on, who has approved.
With --payload the bytes that signers sign come out, for ` + "`ronbox registry sign`" + `.`,
		Example: `  ronbox registry proposals
  ronbox registry proposals p_01J… --payload > payload.json   # for a signer away from the node`,
		Args: atMost(1, "at most one proposal id"),
	}
	cmd.Flags().BoolVar(&payload, "payload", false, "print the payload of proposal ID, nothing else")
	cmd.RunE = a.online(func(ctx context.Context, c *client.Client, args []string) error {
		switch {
		case len(args) == 0 && payload:
			return usage("--payload wants a proposal id")
		case len(args) == 0:
			return a.listProposals(ctx, c)
		case payload:
			return a.bytesOf(c.ProposalPayload(ctx, args[0]))
		}
		p, err := c.Proposal(ctx, args[0])
		if err != nil {
			return err
		}
		return a.show(p, func(t table) { proposalTable(t, p) })
	})
	return cmd
}

func (a *app) listProposals(ctx context.Context, c *client.Client) error {
	list, err := allProposals(ctx, c)
	if err != nil {
		return err
	}
	return a.show(list, func(t table) {
		if len(list.Proposals) == 0 {
			t.row("no live proposals")
			return
		}
		t.row("ID", "VERSION", "STATE", "APPROVALS", "EXPIRES", "PAYLOAD")
		for _, p := range list.Proposals {
			t.row(p.ProposalID, p.Version, p.State, quorumText(p), p.ExpiresAt, short(p.PayloadB3))
		}
	})
}

// maxPages bounds the walk: the node keeps 256 live proposals in pages of 100.
const maxPages = 64

func allProposals(ctx context.Context, c *client.Client) (wire.ProposalList, error) {
	all := wire.ProposalList{Proposals: []wire.Proposal{}}
	for range maxPages {
		page, err := c.Proposals(ctx, all.Next, 0)
		if err != nil {
			return all, err
		}
		all.Proposals = append(all.Proposals, page.Proposals...)
		if all.Next = page.Next; page.Next == "" {
			return all, nil
		}
	}
	return all, nil // Next says where to go on
}

func proposalTable(t table, p wire.Proposal) {
	t.row("proposal", p.ProposalID)
	t.row("state", p.State)
	t.row("version", p.Version)
	t.row("kind", p.Kind+", "+p.Mode)
	t.row("payload", p.PayloadB3)
	t.row("builds on", p.PrevHash)
	t.row("items", p.ItemsCount)
	t.row("approvals", quorumText(p))
	for _, ap := range p.Approvals {
		t.row("approved by", ap.SignerID+" at "+ap.SignedAt)
	}
	t.row("created", p.CreatedAt)
	t.row("expires", p.ExpiresAt)
}

func quorumText(p wire.Proposal) string {
	return fmt.Sprintf("%d of %d needed", len(p.Approvals), p.Quorum.M)
}
