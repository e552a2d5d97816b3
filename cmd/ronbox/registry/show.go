package registry

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"ronbox/cmd/ronbox/cli"
	"ronbox/engines/registry/record"
)

// showPayload shows a signer what is about to be signed; of known items and signers before it, what it changes of them.
func (a app) showPayload(p *record.Payload, base *record.Items, before *record.SignerSet, all bool) {
	var s strings.Builder
	fmt.Fprintf(&s, "%s version %d, %s, %s of %s\n", p.Origin, p.Version, p.Kind, p.Mode, p.CreatedAt)
	fmt.Fprintf(&s, "on top of %s\n", p.PrevHash)
	if p.Expiry != "" {
		fmt.Fprintf(&s, "expires %s\n", p.Expiry)
	}
	if u := p.Supersede; u != nil {
		fmt.Fprintf(&s, "in place of entry %s: %s, %s\n", u.Of, cmp.Or(u.Other, u.Reason), u.Note)
	}
	if p.SignerSet != nil {
		writeSigners(&s, p.SignerSet, before)
	}
	put, remove := p.Put, p.Remove
	if base != nil && p.Mode == record.ModeFull {
		if after, err := record.NewItems(p.Put); err == nil {
			put, remove = record.Diff(*base, after)
		}
	}
	most := sample
	if all {
		most = len(put) + len(remove)
	}
	writeChanges(&s, put, remove, base, most)
	fmt.Fprintf(&s, "%d items after it, root %s\npayload %s", p.ItemsCount, p.ItemsRoot, p.B3())
	a.Say("%s", s.String())
}

// writeSigners lists a set of signers; of a known one before it, it marks what is new and what was otherwise, and says who must approve.
func writeSigners(s *strings.Builder, set, before *record.SignerSet) {
	fmt.Fprintf(s, "from then on %d of %d signers must approve a version, %d a change of signers:\n", set.Threshold, set.Active(), set.ThresholdGov)
	for _, m := range set.Signers {
		fmt.Fprintf(s, "  %s %s %s%s\n", m.ID, m.Status, m.PublicKey, since(m, before))
	}
	for _, vkey := range set.LogKeys {
		mark := ""
		if before != nil && !slices.Contains(before.LogKeys, vkey) {
			mark = ", new"
		}
		fmt.Fprintf(s, "  log key %s%s\n", vkey, mark)
	}
	if before == nil {
		return
	}
	for _, vkey := range before.LogKeys {
		if !slices.Contains(set.LogKeys, vkey) {
			fmt.Fprintf(s, "  log key %s, out\n", vkey)
		}
	}
	fmt.Fprintf(s, "before it %d of %d, %d a change, by set %s of epoch %d\n", before.Threshold, before.Active(), before.ThresholdGov, before.B3(), before.Epoch)
	for _, e := range electorates(set, before) {
		fmt.Fprintf(s, "it needs %s\n", e)
	}
}

// since says what a change of signers does to a signer, "" for nothing or where the set before it is not known.
func since(m record.Signer, before *record.SignerSet) string {
	was, known := before.Find(m.ID)
	switch {
	case before == nil || was.Status == m.Status:
		return ""
	case !known:
		return ", new"
	}
	return strings.TrimSuffix(", was "+was.Status+": "+m.Reason, ": ")
}

// sample is how many changed descriptors are shown of a delta.
const sample = 3

// writeChanges lists the first descriptors of a delta, a line each; of a known base, behind each line what it replaces.
func writeChanges(s *strings.Builder, put []record.Item, remove []string, base *record.Items, most int) {
	for i, it := range put {
		if i == most {
			fmt.Fprintf(s, "  + … %d more\n", len(put)-most)
			break
		}
		fmt.Fprintf(s, "  + %s\n", cli.Clip(string(it.Bytes), 110))
		if base == nil {
			continue
		}
		if old, replaces := base.Get(it.ID); replaces {
			fmt.Fprintf(s, "  = %s\n", cli.Clip(string(old.Bytes), 110))
		}
	}
	for i, id := range remove {
		if i == most {
			fmt.Fprintf(s, "  - … %d more\n", len(remove)-most)
			break
		}
		fmt.Fprintf(s, "  - %s\n", id)
	}
}
