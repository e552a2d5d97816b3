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
	"ronbox/engines/registry/checkpoint"
	"ronbox/engines/registry/record"
	registryapi "ronbox/httpapi/wire/registry"
)

func (a app) signersCmd() *cobra.Command {
	return cli.Group("signers", "Show the signers, or propose a change of them",
		a.showSignersCmd(), a.proposeSignersCmd())
}

func (a app) showSignersCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "show [EPOCH]",
		Short: "Show the signers, now or in an epoch",
		Long: `Show the signers and the thresholds, now or in an epoch. A genesis or a change of signers
begins an epoch.`,
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

// electorate is a group of signers that must approve a change: Need of the keys of Of.
type electorate struct {
	Of      string   `json:"of" enum:"old|new|added"` // signers of the set in force, of the next set, or added keys
	Need    int      `json:"need"`
	Signers []string `json:"signers"`
}

func (e electorate) String() string {
	return fmt.Sprintf("%d of the %s signers %s", e.Need, e.Of, strings.Join(e.Signers, ", "))
}

// standing returns the signers of the set in force that may approve a version with the signer set
// next. next is nil if the version does not change the set.
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

// electorates returns the groups that must approve the change from the set before to next. One
// approval may count in all of them.
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
	added.Need = len(added.Signers)
	if added.Need > 0 {
		all = append(all, added)
	}
	return all
}

type signersFlags struct {
	setFlags
	retire, revoke []string
	reason, out    string
	grace          uint64
}

func (a app) proposeSignersCmd() *cobra.Command {
	var f signersFlags
	cmd := &cobra.Command{
		Use:   "propose (--add KEY | --retire ID | --revoke ID --reason WHY | --threshold N | …)",
		Short: "Propose the next signer set, and show which signers must approve it",
		Long: `Propose the next signer set: the one in force, changed by the flags. The output lists the
needed approvals: the governance threshold of the signers in force and of the next ones,
and every added key. One approval may count for all three. A retired key may still
approve its own removal. A revoked key no longer counts, whatever it has approved.`,
		Example: `  ronbox registry signers propose --retire org:example#eve --add org:example#frank=A6EH…`,
	}
	fl := cmd.Flags()
	fl.StringArrayVar(&f.add, "add", nil, "new signer: `ID=BASE64`, or a file that keygen --json printed")
	fl.StringArrayVar(&f.retire, "retire", nil, "`ID` of a signer to retire")
	fl.StringArrayVar(&f.revoke, "revoke", nil, "`ID` of a signer whose key is lost or stolen; needs --reason")
	fl.StringVar(&f.reason, "reason", "", "reason of --retire or --revoke, a `TEXT` kept in the log")
	fl.Uint64Var(
		&f.grace,
		"grace",
		0,
		fmt.Sprintf(
			"signatures of a retired key count for `N` versions after this one, at most %d",
			record.MaxGrace,
		),
	)
	fl.IntVar(&f.threshold, "threshold", 0, "a version needs `N` approvals (default as before)")
	fl.IntVar(&f.thresholdGov, "threshold-gov", 0, "a change of signers needs `N` approvals (default as before)")
	fl.StringArrayVar(&f.logKeys, "log-key", nil,
		"public key that may sign checkpoints, as a C2SP `vkey`; repeatable\n(default: as before)")
	fl.StringVar(&f.witnesses, "witness-policy", "", witnessPolicyUsage+"\n(default: as before)")
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
		a.warnOfLoss(set)
		return a.drafted(ctx, c, base, record.Draft{SignerSet: set}, f.out, electorates(set, base.Signers))
	})
	return cmd
}

// headBase reads the base of the next version. The log must have a genesis.
func headBase(ctx context.Context, c registryapi.Client) (b record.Base, err error) {
	head, err := begun(ctx, c)
	if err != nil {
		return b, err
	}
	return fetchBase(ctx, c, head)
}

// nextSigners returns the set in force, changed as the flags say.
func (a app) nextSigners(base record.Base, f signersFlags) (*record.SignerSet, error) {
	switch {
	case f.reason == "" && len(f.revoke) > 0:
		return nil, cli.Usage("want --reason with --revoke: why the key must never count again")
	case f.reason != "" && len(f.retire)+len(f.revoke) == 0:
		return nil, cli.Usage("want --retire or --revoke with --reason")
	case f.grace > record.MaxGrace || f.grace > 0 && len(f.retire) == 0:
		return nil, cli.Usage("--grace %d: want at most %d, with --retire", f.grace, record.MaxGrace)
	}
	old := base.Signers
	next := *old
	next.Signers = slices.Clone(old.Signers)
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
		err = a.edit(&next, f.setFlags, "--add", base.Version+1)
	}
	if err != nil {
		return nil, err
	}
	if next.B3() == old.B3() {
		return nil, cli.Fail(cli.ExitFailed, "no_change", "",
			"the set does not differ from the one in force, of epoch %d", old.Epoch)
	}
	next.Epoch++
	err = next.Validate(old)
	if fault, ok := errors.AsType[*record.FieldError](err); ok {
		member, _, _ := strings.Cut(fault.Field, ".")
		flag := map[string]string{
			"threshold": "--threshold", "threshold_gov": "--threshold-gov", "log_keys": "--log-key",
			"witness_policy": "--witness-policy", "signers": "--add",
		}[member]
		return nil, cli.Usage("%s: %s %s", flag, fault.Field, fault.Reason)
	}
	return &next, err
}

// dismiss changes the entries of leaving signers. next is the new set, made from old.
func dismiss(old, next *record.SignerSet, flag string, ids []string, change func(*record.Signer)) error {
	for _, id := range ids {
		i := slices.IndexFunc(next.Signers, func(s record.Signer) bool { return s.ID == id })
		switch {
		case i < 0:
			return cli.Usage("%s %s: no such signer; `ronbox registry signers show` lists them", flag, id)
		case next.Signers[i] != old.Signers[i]:
			return cli.Usage("%s %s: it is named twice", flag, id)
		case old.Signers[i].Status == record.StatusRevoked,
			old.Signers[i].Status != record.StatusActive && flag == "--retire":
			return cli.Usage("%s %s: it is %s already", flag, id, old.Signers[i].Status)
		}
		change(&next.Signers[i])
	}
	return nil
}

// setFlags are the flags that genesis and a change of signers have in common. Zero values keep the
// members of the set.
type setFlags struct {
	add, logKeys            []string
	threshold, thresholdGov int
	witnesses               string
}

// edit changes a set as the flags say. flag is the name of the flag that adds signers, and since
// the version that the set begins with.
func (a app) edit(set *record.SignerSet, f setFlags, flag string, since uint64) error {
	set.Threshold, set.ThresholdGov = cmp.Or(f.threshold, set.Threshold), cmp.Or(f.thresholdGov, set.ThresholdGov)
	if len(f.logKeys) > 0 {
		set.LogKeys = f.logKeys
	}
	return cmp.Or(a.addSigners(set, flag, f.add, since), readWitnesses(set, f.witnesses))
}

// warnOfLoss warns if a change of signers needs the key of every signer.
func (a app) warnOfLoss(set *record.SignerSet) {
	if set.ThresholdGov == set.Active() {
		a.Warn("a change of signers needs all %d signers: the loss of one key would end the log; "+
			"--threshold-gov takes fewer", set.Active())
	}
}

const witnessPolicyUsage = "`file` of the witnesses of checkpoints, as C2SP's tlog-policy has it"

// readWitnesses reads the policy of a file, if one is named, into the set.
func readWitnesses(set *record.SignerSet, file string) error {
	if file == "" {
		return nil
	}
	raw, err := cli.ReadFile(file, 64<<10)
	if err != nil {
		return err
	}
	if _, err := checkpoint.ReadPolicy(string(raw)); err != nil {
		return cli.Fail(cli.ExitFailed, "malformed",
			"each witness is a line: witness NAME VKEY, and its URL if the node is to ask it; "+
				"the last line is: quorum and a name, or none",
			"--witness-policy %s: %w", file, err)
	}
	set.WitnessPolicy = string(raw)
	return nil
}

// addSigners adds active signers to a set. Each is given in the form that keygen prints, or as a
// file with it.
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
				return cli.Fail(cli.ExitFailed, "malformed",
					"use ID=BASE64, or a file with the output of `ronbox registry keygen --json`",
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
