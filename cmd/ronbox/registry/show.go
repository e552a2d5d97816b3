package registry

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"ronbox/cmd/ronbox/cli"
	"ronbox/engines/registry/record"
)

// showPayload shows a signer the payload to sign. With the known items and signers before it, it
// shows the changes.
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

// writeSigners lists a set of signers. With the set before it, it marks the changes and names the
// signers that must approve.
func writeSigners(s *strings.Builder, set, before *record.SignerSet) {
	fmt.Fprintf(s, "from then on %d of %d signers must approve a version, %d a change of signers:\n", set.Threshold,
		set.Active(), set.ThresholdGov)
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
	fmt.Fprintf(s, "before it %d of %d, %d a change, by set %s of epoch %d\n", before.Threshold, before.Active(),
		before.ThresholdGov, before.B3(), before.Epoch)
	for _, e := range electorates(set, before) {
		fmt.Fprintf(s, "it needs %s\n", e)
	}
}

// since describes the change of a signer, "" if it did not change or the set before it is unknown.
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

// sample is the number of changed descriptors shown of a delta.
const sample = 3

// writeChanges lists the first descriptors of a delta, a line each. With a known base, the next
// line is the replaced descriptor.
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
