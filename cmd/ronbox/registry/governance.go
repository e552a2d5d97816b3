package registry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"

	"ronbox/cmd/ronbox/cli"
	"ronbox/engines/registry/record"
	registryapi "ronbox/httpapi/registry"
)

func (a app) signersCmd() *cobra.Command {
	return cli.Group("signers", "Show who may sign, or draft who shall", a.showSignersCmd(), a.proposeSignersCmd())
}

func (a app) showSignersCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "show [EPOCH]",
		Short: "Show who may sign, now or in an epoch",
		Long: `Show who may sign, now or in an epoch: a genesis or a change of signers begins one. How
many of them must approve a version, and how many a change of signers, stands above.`,
		Example: `  ronbox registry signers show 1 --json > signers.json   # for ` + "`registry sign --signers`",
		Args:    cli.AtMost(1, "at most one epoch"),
		RunE: a.online(func(ctx context.Context, c registryapi.Client, args []string) error {
			var epoch uint64
			if len(args) == 1 {
				var err error
				if epoch, err = versionArg(args[0], 1); err != nil {
					return err
				}
			}
			s, err := c.Signers(ctx, epoch)
			if err != nil {
				return err
			}
			set, err := record.ParseSignerSet(s.SignerSet)
			if err != nil {
				return fmt.Errorf("signer set: %w", err)
			}
			return a.Show(s, func(t cli.Table) {
				t.Rows("epoch", s.Epoch, "since version", s.Version,
					"threshold", fmt.Sprintf("%d, for governance %d", set.Threshold, set.ThresholdGov))
				for _, m := range set.Signers {
					t.Row(m.Status, m.ID+"  "+m.PublicKey)
				}
				for _, vkey := range set.LogKeys {
					t.Row("log key", vkey)
				}
			})
		}),
	}
}

// electorate is a part of those who must approve a change: Need of the keys of Of.
type electorate struct {
	Of      string   `json:"of" enum:"old|new|added"` // signers of the set in force, of the next set, keys that come in
	Need    int      `json:"need"`
	Signers []string `json:"signers"`
}

func (e electorate) String() string {
	return fmt.Sprintf("%d of the %s signers %s", e.Need, e.Of, strings.Join(e.Signers, ", "))
}

// standing are the signers of the set in force whose approvals count for a version that brings next, nil for none.
func standing(inForce, next *record.SignerSet) electorate {
	e := electorate{Of: "old", Need: inForce.ThresholdGov}
	change := &record.Payload{SignerSet: next}
	for _, m := range inForce.Signers {
		if s, _ := change.Approver(inForce, m.ID); s.Status == record.StatusActive {
			e.Signers = append(e.Signers, m.ID)
		}
	}
	return e
}

// electorates are those who must approve the change from the set before to next; one approval may serve in all of them.
func electorates(next, before *record.SignerSet) []electorate {
	coming, added := electorate{Of: "new", Need: next.ThresholdGov}, electorate{Of: "added"}
	for _, m := range next.Signers {
		if m.Status == record.StatusActive {
			coming.Signers = append(coming.Signers, m.ID)
		}
		if _, known := before.Find(m.ID); !known {
			added.Signers = append(added.Signers, m.ID)
		}
	}
	all := []electorate{standing(before, next), coming}
	if added.Need = len(added.Signers); added.Need > 0 {
		all = append(all, added)
	}
	return all
}

type signersFlags struct {
	add, retire, revoke, logKeys []string
	reason                       string
	threshold, thresholdGov      int
	grace                        uint64
	witnesses, out               string
}

func (a app) proposeSignersCmd() *cobra.Command {
	var f signersFlags
	cmd := &cobra.Command{
		Use:   "propose (--add KEY | --retire ID | --revoke ID --reason WHY | --threshold N | …)",
		Short: "Propose the next signer set, and say who must approve it",
		Long: `Propose the next signer set: the one in force, changed as the flags say. Who must approve
it is printed: as many as governance needs of the signers in force and of the next ones,
and every key that comes in; one approval may serve as all three. A key that is retired
still approves its own going; one that is revoked counts no more, whatever it has
approved.`,
		Example: `  ronbox registry signers propose --retire org:example#eve --add org:example#frank=A6EH…`,
	}
	fl := cmd.Flags()
	fl.StringArrayVar(&f.add, "add", nil, "new signer: `ID=BASE64`, or a file that keygen --json printed")
	fl.StringArrayVar(&f.retire, "retire", nil, "`ID` of a signer that goes in peace")
	fl.StringArrayVar(&f.revoke, "revoke", nil, "`ID` of a signer whose key is lost or stolen; needs --reason")
	fl.StringVar(&f.reason, "reason", "", "why they go, kept in the log")
	fl.Uint64Var(&f.grace, "grace", 0, fmt.Sprintf("versions after this one for which what --retire names has signed still\ncounts, at most %d", record.MaxGrace))
	fl.IntVar(&f.threshold, "threshold", 0, "approvals that a version needs (default as before)")
	fl.IntVar(&f.thresholdGov, "threshold-gov", 0, "approvals that a change of signers needs (default as before)")
	fl.StringArrayVar(&f.logKeys, "log-key", nil, "public key that may sign checkpoints from then on, as a C2SP vkey; repeat it\n(default those from before)")
	fl.StringVar(&f.witnesses, "witness-policy", "", witnessPolicyUsage+"\n(default the one from before)")
	fl.StringVar(&f.out, "out", "", "new `file` for the payload (default: it is proposed)")
	cmd.MarkFlagsOneRequired("add", "retire", "revoke", "threshold", "threshold-gov", "log-key", "witness-policy")
	cmd.RunE = a.online(func(ctx context.Context, c registryapi.Client, _ []string) error {
		base, err := headBase(ctx, c)
		if err != nil {
			return err
		}
		set, err := a.nextSigners(base, f)
		if err != nil {
			return err
		}
		if set.ThresholdGov == set.Active() {
			a.Warn("a change of signers will need all %d signers: the loss of one key would end the log; --threshold-gov takes fewer", set.Active())
		}
		return a.drafted(ctx, c, base, record.Draft{SignerSet: set}, f.out, electorates(set, base.Signers))
	})
	return cmd
}

// headBase reads what the next version builds on; there must be a genesis.
func headBase(ctx context.Context, c registryapi.Client) (b record.Base, err error) {
	head, err := begun(ctx, c)
	if err != nil {
		return b, err
	}
	return fetchBase(ctx, c, head)
}

// nextSigners is the set in force, changed as the flags say.
func (a app) nextSigners(base record.Base, f signersFlags) (*record.SignerSet, error) {
	switch {
	case f.reason == "" && len(f.revoke) > 0:
		return nil, cli.Usage("want --reason with --revoke: why that key must never count again")
	case f.reason != "" && len(f.retire)+len(f.revoke) == 0:
		return nil, cli.Usage("--reason says why a signer goes: want --retire or --revoke with it")
	case f.grace > record.MaxGrace || f.grace > 0 && len(f.retire) == 0:
		return nil, cli.Usage("--grace %d: want at most %d, with --retire", f.grace, record.MaxGrace)
	}
	old := base.Signers
	next := *old
	next.Signers = slices.Clone(old.Signers)
	next.Threshold, next.ThresholdGov = cmp.Or(f.threshold, old.Threshold), cmp.Or(f.thresholdGov, old.ThresholdGov)
	if len(f.logKeys) > 0 {
		next.LogKeys = f.logKeys
	}
	if err := readWitnesses(&next, f.witnesses); err != nil {
		return nil, err
	}
	err := dismiss(old, &next, "--retire", f.retire, func(s *record.Signer) {
		s.Status, s.Reason = record.StatusRetired, f.reason
		if f.grace > 0 {
			s.GraceUntilVersion = base.Version + 1 + f.grace
		}
	})
	if err == nil {
		err = dismiss(old, &next, "--revoke", f.revoke, func(s *record.Signer) {
			s.Status, s.Reason, s.GraceUntilVersion = record.StatusRevoked, f.reason, 0
		})
	}
	if err == nil {
		err = a.addSigners(&next, "--add", f.add, base.Version+1)
	}
	if err != nil {
		return nil, err
	}
	if next.B3() == old.B3() {
		return nil, cli.Fail(cli.ExitFailed, "no_change", "", "nothing differs from the set in force, of epoch %d", old.Epoch)
	}
	next.Epoch++
	err = next.Validate(old)
	if fault, ok := errors.AsType[*record.FieldError](err); ok {
		member, _, _ := strings.Cut(fault.Field, ".")
		flag := map[string]string{"threshold": "--threshold", "threshold_gov": "--threshold-gov", "log_keys": "--log-key", "witness_policy": "--witness-policy", "signers": "--add"}[member]
		return nil, cli.Usage("%s: %s %s", flag, fault.Field, fault.Reason)
	}
	return &next, err
}

// dismiss changes the entries of signers who go; next is old in the making.
func dismiss(old, next *record.SignerSet, flag string, ids []string, change func(*record.Signer)) error {
	for _, id := range ids {
		i := slices.IndexFunc(next.Signers, func(s record.Signer) bool { return s.ID == id })
		switch {
		case i < 0:
			return cli.Usage("%s %s: no such signer; `ronbox registry signers show` lists them", flag, id)
		case next.Signers[i] != old.Signers[i]:
			return cli.Usage("%s %s: it is named twice", flag, id)
		case old.Signers[i].Status == record.StatusRevoked, old.Signers[i].Status != record.StatusActive && flag == "--retire":
			return cli.Usage("%s %s: it is %s already", flag, id, old.Signers[i].Status)
		}
		change(&next.Signers[i])
	}
	return nil
}

// addSigners adds active signers to a set, each given as what keygen prints or as the file that holds it.
func (a app) addSigners(set *record.SignerSet, flag string, given []string, since uint64) error {
	for _, text := range given {
		id, key, inline := strings.Cut(text, "=")
		if !inline || !strings.HasPrefix(id, "org:") {
			raw, err := a.ReadInput(text, maxKeyFile)
			if err != nil {
				return fmt.Errorf("%s: want ID=BASE64, as keygen prints it, or a file: %w", flag, err)
			}
			var doc keyDoc
			if err := json.Unmarshal(raw, &doc, json.RejectUnknownMembers(true)); err != nil {
				return cli.Fail(cli.ExitFailed, "malformed", "give ID=BASE64, or what `ronbox registry keygen --json` printed",
					"%s %s is not the public half of a signer's key", flag, text)
			}
			id, key = doc.SignerID, doc.PublicKey
		}
		set.Signers = append(set.Signers, record.Signer{
			ID: id, Algo: record.AlgoEd25519, PublicKey: key, Status: record.StatusActive, SinceVersion: since,
		})
	}
	return nil
}

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
func (a app) drafted(ctx context.Context, c registryapi.Client, base record.Base, d record.Draft, out string, by []electorate) error {
	d.Version = base.Version + 1
	p, _, err := complete(base, d, a.Now())
	if err != nil {
		return err
	}
	doc := draftedDoc{File: out, PayloadB3: p.B3().String(), Version: p.Version, Approvers: by}
	next := "ronbox registry propose " + out
	if out != "" {
		err = cli.WriteFile(out, p.Bytes(), 0o644)
	} else {
		var made registryapi.Proposed
		made, err = c.Propose(ctx, p.Bytes(), doc.PayloadB3)
		doc.ProposalID, doc.ExpiresAt = made.ID, made.ExpiresAt
		next = "each of them: ronbox registry approve " + made.ID + " --key KEY"
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
		Short: "Propose a version that takes HEAD's place, and say why",
		Long: `Propose a version that takes HEAD's place: the log keeps both, and says of HEAD by what it
was followed and why. Its descriptors are those of FILE, a whole desired state as for
apply, or with --back-to those of version N. It needs the approvals that governance needs.`,
		Example: `  ronbox registry supersede --back-to 9 --reason DataError --note "the import was cut short"`,
		Args:    cli.AtMost(1, "at most one file"),
	}
	fl := cmd.Flags()
	fl.Uint64Var(&back, "back-to", 0, "version whose descriptors are restored")
	fl.StringVar(&reason, "reason", "", strings.Join(known, ", ")+", or words of your own")
	fl.StringVar(&note, "note", "", "what happened, for those who read the log")
	fl.StringVar(&out, "out", "", "new `file` for the payload (default: it is proposed)")
	cli.Require(cmd, "reason", "note")
	cmd.RunE = a.online(func(ctx context.Context, c registryapi.Client, files []string) error {
		if (len(files) == 1) == (back > 0) {
			return cli.Usage("want a FILE or --back-to N: what takes HEAD's place")
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
		if d.Put, d.Remove = record.Diff(base.Items, desired); len(d.Put)+len(d.Remove) == 0 {
			return cli.Fail(cli.ExitFailed, "no_change", "", "nothing differs from version %d", base.Version)
		}
		a.showDelta(base, d.Put, d.Remove)
		return a.drafted(ctx, c, base, d, out, []electorate{standing(base.Signers, nil)})
	})
	return cmd
}

// desired reads the descriptors that a supersede brings: those of its file, or of version back below head.
func (a app) desired(ctx context.Context, c registryapi.Client, files []string, back, head uint64) (record.Items, error) {
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
