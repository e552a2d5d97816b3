package registry_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"ronbox/appliance/b3"
	"ronbox/engines/registry"
	"ronbox/engines/registry/document"
	"ronbox/engines/registry/record"
	"ronbox/engines/registry/tables"
	"ronbox/store"
	"ronbox/store/storetest"
)

// chain makes consecutive batches with placeholder records.
type chain struct {
	head  record.Head
	audit tables.AuditRef
}

func (c *chain) batch(ops ...tables.Op) tables.Batch {
	b := tables.Batch{Head: tables.RefOf(c.head), Audit: c.audit}
	for i, op := range ops {
		b.Steps = append(b.Steps, tables.Step{Op: op, Audit: fmt.Appendf(nil, "audit %d", c.audit.Seq+uint64(i)+1)})
	}
	return b
}

func (c *chain) do(t *testing.T, tx *storetest.Tx, ops ...tables.Op) {
	t.Helper()
	r, err := storetest.Do(tx, c.batch(ops...))
	if err != nil {
		t.Fatalf("batch: %v", err)
	}
	c.audit = r.Audit
	c.head, _ = tables.MetaHead.Get(tx.Reader(), tables.KeyHead)
}

func genesisOp() tables.Op {
	return tables.GenesisOp{Version: tables.NewVersion{
		ID:          testID(200),
		Number:      1,
		Hash:        b3.Sum([]byte("entry 1")),
		PayloadB3:   digest("payload 1"),
		CommittedAt: "2026-01-01T00:00:00.000Z",
		Epoch:       1,
		Entry:       []byte("entry 1"),
		Set:         []byte("set"),
	}, Packed: []byte("\x00payload 1"), Origin: "example"}
}

func proposeOp(id int, version uint64, payload, prev string) tables.Op {
	return tables.ProposeOp{ID: testID(id), Row: tables.PropRow{
		Version: version, PayloadB3: digest(payload), PrevHash: digest(prev), Owner: "cap",
		CreatedMS: 10, ExpiresMS: 1000, Bytes: int64(len(payload)),
	}, Packed: append([]byte{0}, payload...)}
}

func commitOp(id int, version uint64, payload, prev string) tables.Op {
	entry := fmt.Appendf(nil, "entry %d", version)
	return tables.CommitOp{Version: tables.NewVersion{
		ID: testID(id), Number: version, Hash: b3.Sum(entry), PayloadB3: digest(payload), PrevHash: digest(prev),
		CommittedAt: "2026-01-01T00:00:01.000Z", Epoch: 1, Entry: entry,
	}}
}

func approveOp(id int, key string) tables.Op {
	return tables.ApproveOp{ID: testID(id), Key: digest(key), Approval: []byte("sig")}
}

func staleOp(id int, at int64) tables.Op {
	return tables.EndOp{ID: testID(id), State: document.StateStale, AtMS: at}
}

func forgetOp(over int64, ids ...int) tables.Op {
	op := tables.ForgetOp{OverMS: over}
	for _, id := range ids {
		op.IDs = append(op.IDs, testID(id))
	}
	return op
}

// started is a log with genesis, and proposal 1 for version 2 live.
func started(t *testing.T) (*storetest.Tx, *chain) {
	t.Helper()
	tx, c := storetest.NewTx(t, registry.Buckets()...), &chain{}
	c.do(t, tx, genesisOp())
	c.do(t, tx, proposeOp(1, 2, "payload 2", "payload 1"))
	return tx, c
}

func TestBatchGuards(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		doc   string
		ops   []tables.Op
		guard string
	}{
		{"a second genesis", []tables.Op{genesisOp()}, "log_is_empty"},
		{"an approval of nothing", []tables.Op{approveOp(9, "k")}, "live"},
		{"a commit of nothing", []tables.Op{commitOp(9, 2, "payload 2", "payload 1")}, "live"},
		{"a commit of another payload", []tables.Op{commitOp(1, 2, "payload x", "payload 1")}, "payload"},
		{"a commit twice in a batch", []tables.Op{commitOp(1, 2, "payload 2", "payload 1"),
			commitOp(1, 2, "payload 2", "payload 1")}, "live"},
		{"a child before its parent", []tables.Op{proposeOp(2, 3, "payload 3", "payload 2"),
			commitOp(2, 3, "payload 3", "payload 2")}, "head"},
		{"an end twice", []tables.Op{staleOp(1, 20), staleOp(1, 20)}, "live"},
		{"a version's outcome forgotten", []tables.Op{forgetOp(1<<40, 200)}, "outcome_over"},
		{"what has not ended forgotten", []tables.Op{forgetOp(1<<40, 1)}, "outcome_over"},
	} {
		t.Run(tt.doc, func(t *testing.T) {
			tx, c := started(t)
			before := dump(tx.Reader())
			_, err := storetest.Do(tx, c.batch(append([]tables.Op{nil}, tt.ops...)...))
			var guard *tables.GuardError
			if !errors.As(err, &guard) || guard.Guard != tt.guard || guard.Op != len(tt.ops) {
				t.Fatalf("err = %v, want guard %q at op %d", err, tt.guard, len(tt.ops))
			}
			if after := dump(tx.Reader()); after != before {
				t.Errorf("a refused batch left something:\n%s\nbefore:\n%s", after, before)
			}
		})
	}
}

// Both heads are compared first, so that a batch never builds on the write of another task.
func TestBatchComparesBothHeads(t *testing.T) {
	t.Parallel()
	tx, c := started(t)
	for _, spoil := range []func(b *tables.Batch){
		func(b *tables.Batch) { b.Head.Version++ },
		func(b *tables.Batch) { b.Head.Hash[0] ^= 1 },
		func(b *tables.Batch) { b.Audit.Seq++ },
		func(b *tables.Batch) { b.Audit.B3[0] ^= 1 },
	} {
		b := c.batch(commitOp(1, 2, "payload 2", "payload 1"))
		spoil(&b)
		var guard *tables.GuardError
		if _, err := storetest.Do(tx, b); !errors.As(err, &guard) || guard.Op != -1 {
			t.Errorf("err = %v, want the batch's own guard", err)
		}
	}
}

func TestBatchCommitMovesTheProposal(t *testing.T) {
	t.Parallel()
	tx, c := started(t)
	c.do(t, tx, approveOp(1, "k1"))
	c.do(t, tx, proposeOp(2, 3, "payload 3", "payload 2"), approveOp(1, "k2"), commitOp(1, 2, "payload 2", "payload 1"),
		commitOp(2, 3, "payload 3", "payload 2"))
	r := tx.Reader()
	if c.head.Version != 3 || c.head.PayloadB3 != digest("payload 3") {
		t.Errorf("head = %+v", c.head)
	}
	if packed, _ := tables.Payloads.Get(r, 2); string(packed) != "\x00payload 2" {
		t.Errorf("payload of version 2 = %q", packed)
	}
	if how, ok := tables.DoneOutcome.Get(r, testID(1)); !ok || how.State != document.StateCommitted || how.Version != 2 {
		t.Errorf("outcome = %+v, %v", how, ok)
	}
	for _, b := range []*store.Bucket{tables.PropBucket, tables.PropExpiryBucket, tables.ApprovalBucket} {
		for k := range r.Range(b, nil, nil) {
			t.Errorf("%s still has %x", b.Name, k)
		}
	}
	for n := uint64(1); n <= c.audit.Seq; n++ {
		if rec, _ := tables.Audits.Get(r, n); string(rec) != fmt.Sprintf("audit %d", n) {
			t.Errorf("audit %d = %q", n, rec)
		}
	}
}

func dump(r store.Reader) string {
	var out bytes.Buffer
	for _, b := range registry.Buckets() {
		for k, v := range r.Range(b, nil, nil) {
			fmt.Fprintf(&out, "%s %x %x\n", b.Name, k, v)
		}
	}
	return out.String()
}

func TestForgetOnlyWhatIsOver(t *testing.T) {
	t.Parallel()
	tx, c := started(t)
	c.do(t, tx, staleOp(1, 20))
	var guard *tables.GuardError
	if _, err := storetest.Do(tx, c.batch(forgetOp(19, 1))); !errors.As(err, &guard) || guard.Guard != "outcome_over" {
		t.Errorf("too early: %v", err)
	}
	c.do(t, tx, forgetOp(20, 1))
	if tables.DoneOutcome.Has(tx.Reader(), testID(1)) || !tables.DoneOutcome.Has(tx.Reader(), testID(200)) {
		t.Error("the wrong outcome is gone")
	}
}
