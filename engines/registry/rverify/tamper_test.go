package rverify

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"ronbox/engines/registry/record"
)

// place is one byte of a log.
type place struct {
	name string
	flip func(l *memLog, bit int)
}

// places lists every byte that Verify covers.
func places(l *memLog) []place {
	var all []place
	rows := func(name string, of func(l *memLog) map[uint64][]byte) {
		for _, k := range slices.Sorted(maps.Keys(of(l))) {
			for i := range of(l)[k] {
				all = append(all, place{
					fmt.Sprintf("%s %d byte %d", name, k, i),
					func(l *memLog, bit int) { of(l)[k][i] ^= 1 << bit },
				})
			}
		}
	}
	rows("entry", func(l *memLog) map[uint64][]byte { return l.entries })
	rows("payload", func(l *memLog) map[uint64][]byte { return l.payloads })
	rows("audit", func(l *memLog) map[uint64][]byte { return l.audits })
	rows("epoch", func(l *memLog) map[uint64][]byte { return l.epochs })
	for i := range 32 {
		all = append(all,
			place{fmt.Sprintf("head hash byte %d", i), func(l *memLog, bit int) { l.head.Hash[i] ^= 1 << bit }},
			place{fmt.Sprintf("head payload byte %d", i), func(l *memLog, bit int) { l.head.PayloadB3[i] ^= 1 << bit }},
			place{fmt.Sprintf("audit head byte %d", i), func(l *memLog, bit int) { l.auditHead[i] ^= 1 << bit }})
	}
	for i := range 8 {
		all = append(
			all,
			place{
				fmt.Sprintf("head version byte %d", i),
				func(l *memLog, bit int) { l.head.Version ^= 1 << (8*i + bit) },
			},
			place{fmt.Sprintf("head epoch byte %d", i), func(l *memLog, bit int) { l.head.Epoch ^= 1 << (8*i + bit) }},
			place{fmt.Sprintf("audit seq byte %d", i), func(l *memLog, bit int) { l.auditSeq ^= 1 << (8*i + bit) }},
		)
	}
	for i := range l.head.CommittedAt {
		all = append(all, place{fmt.Sprintf("head time byte %d", i), func(l *memLog, bit int) {
			b := []byte(l.head.CommittedAt)
			b[i] ^= 1 << bit
			l.head.CommittedAt = string(b)
		}})
	}
	return all
}

// One bit flipped anywhere fails the log. Every byte is tried with one bit here; TestAnyFlippedBit
// tries others.
func TestEveryFlippedByte(t *testing.T) {
	l := newLog(t, 1, 1).fill(t, 1, 1)
	for i, p := range places(l) {
		p.flip(l, i%8)
		if rep := verify(t, l, Options{}); rep.OK {
			t.Errorf("%s, bit %d: not noticed", p.name, i%8)
		}
		p.flip(l, i%8)
	}
	if rep := verify(t, l, Options{}); !rep.OK {
		t.Errorf("the log was not put back: %v", rep.Problem)
	}
}

func TestAnyFlippedBit(t *testing.T) {
	l := newLog(t, 2, 3).fill(t, 6, 2)
	all := places(l)
	rapid.Check(t, func(t *rapid.T) {
		p, bit := rapid.SampledFrom(all).Draw(t, "place"), rapid.IntRange(0, 7).Draw(t, "bit")
		c := l.clone()
		p.flip(c, bit)
		if rep := verify(t, c, Options{Jobs: 2, Fan: fan}); rep.OK {
			t.Fatalf("%s, bit %d: not noticed", p.name, bit)
		}
	})
}

// A forger without keys who swaps whole records is found too.
func TestForgedRecords(t *testing.T) {
	const last = 7
	sound := newLog(t, 2, 3).fill(t, last-1, 2)
	other := newLog(t, 2, 4).fill(t, last, 2)
	for _, tt := range []struct {
		doc  string
		edit func(l *memLog)
	}{
		{"an entry is gone", func(l *memLog) { delete(l.entries, 3) }},
		{"a payload is gone", func(l *memLog) { delete(l.payloads, 3) }},
		{"an audit record is gone", func(l *memLog) { delete(l.audits, 9) }},
		{"the last audit record is gone", func(l *memLog) { delete(l.audits, l.auditSeq) }},
		{"the epoch is gone", func(l *memLog) { delete(l.epochs, 1) }},
		{"an epoch too many", func(l *memLog) { l.epochs[2] = l.epochs[1] }},
		{"an empty entry", func(l *memLog) { l.entries[3] = nil }},
		{"two entries changed places", func(l *memLog) { l.entries[3], l.entries[4] = l.entries[4], l.entries[3] }},
		{"two payloads changed places", func(l *memLog) { l.payloads[3], l.payloads[4] = l.payloads[4], l.payloads[3] }},
		{"two versions changed places", func(l *memLog) {
			l.entries[3], l.entries[4] = l.entries[4], l.entries[3]
			l.payloads[3], l.payloads[4] = l.payloads[4], l.payloads[3]
		}},
		{"two audit records changed places", func(l *memLog) { l.audits[5], l.audits[6] = l.audits[6], l.audits[5] }},
		{"a version is cut out", func(l *memLog) {
			for v := uint64(3); v < last; v++ {
				l.entries[v], l.payloads[v] = l.entries[v+1], l.payloads[v+1]
			}
			delete(l.entries, last)
			delete(l.payloads, last)
			l.head.Version--
		}},
		{"HEAD set back, the rest left", func(l *memLog) { setBack(l, last-1) }},
		{"HEAD set back, entry and payload deleted", func(l *memLog) {
			setBack(l, last-1)
			delete(l.entries, last)
			delete(l.payloads, last)
		}},
		{"an entry beyond HEAD", func(l *memLog) { l.entries[last+1] = l.entries[last] }},
		{"a payload beyond HEAD", func(l *memLog) { l.payloads[last+1] = l.payloads[last] }},
		{"an audit record beyond its head", func(l *memLog) { l.audits[l.auditSeq+1] = l.audits[l.auditSeq] }},
		{"an audit record far beyond its head", func(l *memLog) { l.audits[l.auditSeq+2] = l.audits[l.auditSeq] }},
		{"an audit record before the first", func(l *memLog) { l.audits[0] = l.audits[1] }},
		{"a version of another log", func(l *memLog) { l.entries[4], l.payloads[4] = other.entries[4], other.payloads[4] }},
		{"audit records of another log", func(l *memLog) { l.audits = other.audits }},
		{"an entry spelled otherwise", func(l *memLog) { l.entries[3] = append(l.entries[3], ' ') }},
		{"a payload spelled otherwise", func(l *memLog) { l.payloads[3] = append(l.payloads[3], '\n') }},
		{"an audit record spelled otherwise", func(l *memLog) { l.audits[3] = append([]byte{' '}, l.audits[3]...) }},
	} {
		l := sound.clone()
		tt.edit(l)
		wantNoticed(t, tt.doc, l)
	}
}

// So is an entry that was changed and sealed again, with HEAD, around the same signatures.
func TestResealedEntries(t *testing.T) {
	const last = 7
	sound := newLog(t, 2, 3).fill(t, last-1, 2)
	for _, tt := range []struct {
		doc  string
		edit func(l *memLog)
	}{
		{"approvals lost in an entry resealed without them", func(l *memLog) {
			reseal(t, l, last, func(a *record.Artifact) { a.Approvals = a.Approvals[:1] })
		}},
		{"a commit moved back in time and resealed", func(l *memLog) {
			reseal(t, l, last, func(a *record.Artifact) { a.CommittedAt = "2020-01-01T00:00:00Z" })
		}},
		{"an entry resealed with another place in the audit chain", func(l *memLog) {
			reseal(t, l, last, func(a *record.Artifact) {
				a.AuditSeq--
				rec, err := record.ParseAudit(l.audits[a.AuditSeq])
				if err != nil {
					t.Fatal(err)
				}
				a.AuditHead = rec.B3()
			})
		}},
		{"an entry resealed under another signer set", func(l *memLog) {
			reseal(t, l, last, func(a *record.Artifact) { a.AuthorizedBy = a.PayloadB3 })
		}},
		{"an entry resealed for another proposal", func(l *memLog) {
			reseal(t, l, last, func(a *record.Artifact) { a.ProposalID = "p_another" })
		}},
		{"a commit that has no version", func(l *memLog) {
			l.audit(t, record.Audit{Event: record.EventCommit, Version: last + 1, PayloadB3: l.head.PayloadB3})
		}},
	} {
		l := sound.clone()
		tt.edit(l)
		wantNoticed(t, tt.doc, l)
	}
}

// wantNoticed checks l in small steps and in one.
func wantNoticed(t *testing.T, doc string, l *memLog) {
	t.Helper()
	for _, n := range []int{1, 1000} {
		v, more := New(Options{}), true
		for more {
			more, _ = v.Step(t.Context(), l, n)
		}
		if v.Problem() == nil || v.Report().OK {
			t.Errorf("%s, %d versions a step: not noticed", doc, n)
		}
	}
}

// setBack makes version v the stored HEAD.
func setBack(l *memLog, v uint64) {
	e, err := record.ParseEntry(l.entries[v])
	if err != nil {
		panic(err)
	}
	l.head = record.Head{
		Version: v, Hash: e.Hash(), PayloadB3: e.PayloadB3, CommittedAt: e.CommittedAt,
		Epoch: l.head.Epoch,
	}
}

// reseal replaces the last entry and updates HEAD.
func reseal(t *testing.T, l *memLog, v uint64, edit func(a *record.Artifact)) {
	t.Helper()
	e, err := record.ParseEntry(l.entries[v])
	if err != nil {
		t.Fatal(err)
	}
	forged := record.Artifact{
		Origin:       e.Origin,
		Version:      e.Version,
		Kind:         e.Kind,
		PayloadB3:    e.PayloadB3,
		PayloadBytes: e.PayloadBytes,
		PrevHash:     e.PrevHash,
		Approvals:    e.Approvals,
		AuthorizedBy: e.AuthorizedBy,
		AuditSeq:     e.AuditSeq,
		AuditHead:    e.AuditHead,
		ProposalID:   e.ProposalID,
		CommittedAt:  e.CommittedAt,
	}
	edit(&forged)
	sealed, err := record.NewArtifact(forged)
	if err != nil {
		t.Fatal(err)
	}
	l.entries[v] = sealed.Bytes()
	setBack(l, v)
}
