package rverify

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"iter"
	"maps"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"ronbox/appliance/b3"
	"ronbox/engines/registry/record"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memLog is a log in memory, written as the registry writes one.
type memLog struct {
	head      record.Head
	entries   map[uint64][]byte
	payloads  map[uint64][]byte
	audits    map[uint64][]byte
	epochs    map[uint64][]byte
	auditSeq  uint64
	auditHead b3.Digest

	followed bool

	event string // of the next commits' audit records, "" for the right one
	base  record.Base
	keys  []*record.Key
	now   time.Time
}

func (l *memLog) Head() (record.Head, error)                  { return l.head, nil }
func (l *memLog) Followed() bool                              { return l.followed }
func (l *memLog) Horizon() (*Horizon, error)                  { return nil, nil }
func (l *memLog) Entry(v uint64) ([]byte, error)              { return found(l.entries, v) }
func (l *memLog) Payload(v uint64) ([]byte, error)            { return found(l.payloads, v) }
func (l *memLog) AuditHead() (uint64, b3.Digest, error)       { return l.auditSeq, l.auditHead, nil }
func (l *memLog) Epochs() iter.Seq2[uint64, []byte]           { return ascending(l.epochs, 0, 1<<63) }
func (l *memLog) Audit(a, b uint64) iter.Seq2[uint64, []byte] { return ascending(l.audits, a, b) }

func found(rows map[uint64][]byte, v uint64) ([]byte, error) {
	if raw, ok := rows[v]; ok {
		return raw, nil
	}
	return nil, ErrMissing
}

func ascending(rows map[uint64][]byte, from, to uint64) iter.Seq2[uint64, []byte] {
	return func(yield func(uint64, []byte) bool) {
		for _, k := range slices.Sorted(maps.Keys(rows)) {
			if k >= from && k <= to && !yield(k, rows[k]) {
				return
			}
		}
	}
}

func (l *memLog) clone() *memLog {
	c := *l
	c.entries, c.payloads = cloneRows(l.entries), cloneRows(l.payloads)
	c.audits, c.epochs = cloneRows(l.audits), cloneRows(l.epochs)
	return &c
}

func cloneRows(rows map[uint64][]byte) map[uint64][]byte {
	out := map[uint64][]byte{}
	for k, v := range rows {
		out[k] = bytes.Clone(v)
	}
	return out
}

// newLog begins a log with n signers and a quorum of m.
func newLog(t testing.TB, m, n int) *memLog {
	l := &memLog{
		entries:  map[uint64][]byte{},
		payloads: map[uint64][]byte{},
		audits:   map[uint64][]byte{},
		epochs:   map[uint64][]byte{},
		base:     record.Base{Origin: "ronbox.test/log"},
		now:      time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC),
	}
	set := &record.SignerSet{Epoch: 1, Threshold: m, ThresholdGov: m}
	for i := range n {
		k, err := record.NewKey(fmt.Sprintf("org:test#k%02d", i),
			bytes.NewReader(bytes.Repeat([]byte{byte(i + 1)}, 32)))
		if err != nil {
			t.Fatal(err)
		}
		l.keys = append(l.keys, k)
		set.Signers = append(set.Signers, k.Signer(1))
	}
	l.audit(t, record.Audit{Event: "genesis.rejected", Decision: record.DecisionReject, Reason: "malformed"})
	l.append(t, record.Draft{Full: true, SignerSet: set}, n)
	return l
}

// audit chains a record.
func (l *memLog) audit(t testing.TB, a record.Audit) {
	l.now = l.now.Add(time.Second)
	a.Seq, a.Prev, a.At = l.auditSeq+1, l.auditHead, record.FormatTime(l.now)
	if a.Decision == "" {
		a.Decision = record.DecisionAccept
	}
	rec, err := record.ParseAudit(a.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	l.audits[rec.Seq], l.auditSeq, l.auditHead = rec.Bytes(), rec.Seq, rec.B3()
}

// append commits the next version with approvals by the first signers.
func (l *memLog) append(t testing.TB, d record.Draft, signers int) {
	d.Version, l.base.Hash = l.base.Version+1, l.head.Hash
	p, items, err := record.Complete(d.Bytes(), l.base, l.now)
	if err != nil {
		t.Fatal(err)
	}
	id := fmt.Sprintf("p_%026d", d.Version)
	l.audit(t, record.Audit{Event: "proposal.created", ProposalID: id, PayloadB3: p.B3(), Version: d.Version})
	var approvals []record.Approval
	for _, k := range l.keys[:signers] {
		a := k.Sign(p.B3(), l.now)
		a.ReceivedAt = record.FormatTime(l.now)
		approvals = append(approvals, a)
		l.audit(t, record.Audit{Event: "approve.recorded", ProposalID: id, Signers: []string{k.SignerID}})
	}
	l.commit(t, p, id, approvals)
	l.base.Version, l.base.PayloadB3, l.base.Items = p.Version, p.B3(), items
	if p.SignerSet != nil {
		l.base.Signers = p.SignerSet
		l.epochs[p.SignerSet.Epoch] = append(binary.BigEndian.AppendUint64(nil, p.Version), p.SignerSet.Bytes()...)
	}
	l.head.Epoch = l.base.Signers.Epoch
}

// commit writes entry, payload, head and audit record without any check.
func (l *memLog) commit(t testing.TB, p *record.Payload, id string, approvals []record.Approval) {
	set, event := l.base.Signers, record.EventOf(p.Kind)
	if set == nil {
		set = p.SignerSet
	}
	entry, err := record.NewArtifact(record.Artifact{
		Origin:       p.Origin,
		Version:      p.Version,
		Kind:         p.Kind,
		PayloadB3:    p.B3(),
		PayloadBytes: int64(len(p.Bytes())),
		PrevHash:     l.head.Hash,
		Approvals:    approvals,
		AuthorizedBy: set.B3(),
		AuditSeq:     l.auditSeq,
		AuditHead:    l.auditHead,
		ProposalID:   id,
		CommittedAt:  record.FormatTime(l.now),
	})
	if err != nil {
		t.Fatal(err)
	}
	l.entries[p.Version], l.payloads[p.Version] = entry.Bytes(), bytes.Clone(p.Bytes())
	l.head = record.Head{
		Version: p.Version, Hash: entry.Hash(), PayloadB3: p.B3(),
		CommittedAt: entry.CommittedAt, Epoch: l.head.Epoch,
	}
	l.audit(t, record.Audit{Event: cmp.Or(l.event, event), ProposalID: id, PayloadB3: p.B3(), Version: p.Version})
}

// item is a small descriptor.
func item(t testing.TB, n, generation int) record.Item {
	it, err := record.ParseItem(
		fmt.Appendf(nil, `{"id":"service/s%05d","kind":"service","region":"r%d","meta":{"generation":%d}}`, n, n%7,
			generation),
	)
	if err != nil {
		t.Fatal(err)
	}
	return it
}

// fill commits versions of one added, one changed and, later, one removed descriptor each.
func (l *memLog) fill(t testing.TB, versions, signers int) *memLog {
	for v := range versions {
		d := record.Draft{Put: []record.Item{item(t, 10*v, 1)}}
		if v > 0 {
			d.Put = append(d.Put, item(t, 10*(v-1), 2))
		}
		if v > 2 {
			d.Remove = []string{item(t, 10*(v-3), 1).ID}
		}
		l.append(t, d, signers)
	}
	l.audit(t,
		record.Audit{Event: "propose.rejected", Decision: record.DecisionReject, Reason: "version_skew", CorrID: "abc"})
	return l
}
