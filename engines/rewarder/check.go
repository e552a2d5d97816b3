package rewarder

import (
	"fmt"
	"slices"

	"github.com/go-json-experiment/json"

	"ronbox/appliance/b3"
	"ronbox/engines/rewarder/record"
	"ronbox/store"
)

// Checks lists the steps of a check of a file: every row of every bucket is read, and the rows that it speaks of are there and agree with it.
func Checks() []store.Check { return []store.Check{{Name: service, Run: check}} }

func check(r store.Reader) error {
	for _, one := range []func(store.Reader) error{
		checkPolicies, checkUploads, checkChunks, checkInputs, checkSlots, checkSealed, checkAllocations, checkIntents, checkTodos,
	} {
		if err := one(r); err != nil {
			return err
		}
	}
	return nil
}

// wrong returns a RowError for a row that reads well and cannot be true.
func wrong[K, V any](t store.Table[K, V], key K, format string, args ...any) error {
	return &store.RowError{Bucket: t.Bucket().Name, Key: keyOf(key), Cause: fmt.Errorf(format, args...)}
}

func checkPolicies(r store.Reader) error {
	for key, doc := range policies.All(r) {
		p, err := record.ParsePolicy(doc.Body)
		if err != nil {
			return wrong(policies, key, "policy: %w", err)
		}
		if key != scoped(p.Tenant, doc.ID) || p.ID != doc.ID || p.Hash() != doc.Hash {
			return wrong(policies, key, "is not the policy of its key and hash")
		}
	}
	return nil
}

func checkUploads(r store.Reader) error {
	for id, up := range uploads.All(r) {
		if _, err := record.ParseSnapshot(up.Header); err != nil || up.ID != id {
			return wrong(uploads, id, "is not the upload of its key (%v)", err)
		}
		if up.Dropped {
			continue // its rows may be gone
		}
		for n := range chunksOf(up.Rows) {
			if !chunks.Has(r, piece{id, n}) {
				return wrong(chunks, piece{id, n}, "is missing: the upload has %d rows", up.Rows)
			}
		}
	}
	return nil
}

// checkChunks holds the rows of usage against their uploads: no chunk is beyond the end of its upload, and each has its rows, in order.
func checkChunks(r store.Reader) error {
	var up Upload
	var known bool
	var last record.Row
	for at, raw := range chunks.All(r) {
		if at.n == 0 || up.ID != at.id {
			up, known = uploads.Get(r, at.id)
			last = record.Row{}
		}
		if !known {
			return wrong(chunks, at, "is of no upload")
		}
		n := uint64(0)
		for b := raw; len(b) > 0; n++ {
			row, rest, ok := record.CutRow(b)
			if !ok || last.Compare(row) >= 0 {
				return wrong(chunks, at, "row %d cannot be read, or is not in order", n)
			}
			last, b = row, rest
		}
		want := min(record.ChunkRows, max(up.Rows, uint64(at.n)*record.ChunkRows)-uint64(at.n)*record.ChunkRows)
		if n != want && !up.Dropped {
			return wrong(chunks, at, "has %d rows, not %d", n, want)
		}
	}
	return nil
}

func checkInputs(r store.Reader) error {
	for cid, in := range inputs.All(r) {
		_, err := record.ParseSnapshot(in.Snapshot)
		if err == nil {
			_, err = record.ParseLedgerRef(in.Ledger)
		}
		if err != nil {
			return wrong(inputs, cid, "input: %w", err)
		}
		if in.InputsCID != cid || in.AccountingCID != b3.Sum(in.Snapshot) || in.LedgerCID != b3.Sum(in.Ledger) ||
			record.InputsCID(in.AccountingCID, in.LedgerCID) != cid {
			return wrong(inputs, cid, "is not the input of its key")
		}
		if up, ok := uploads.Get(r, in.Upload); !ok || up.Sealed != in.AccountingCID {
			return wrong(inputs, cid, "upload %s, which has its rows, is missing or has others", in.Upload)
		}
	}
	return nil
}

func checkSlots(r store.Reader) error {
	for slot, run := range slots.All(r) {
		if slot != scoped(run.Tenant, run.Epoch) || run.RunKey != record.RunKey(run.Epoch, run.PolicyHash, run.InputsCID) {
			return wrong(slots, slot, "is not the run of its key")
		}
		if run.State == Failed {
			continue // its input may be gone
		}
		if doc, ok := policies.Get(r, scoped(run.Tenant, run.PolicyID)); !ok || doc.Hash != run.PolicyHash {
			return wrong(slots, slot, "policy %s is missing, or is another one", run.PolicyID)
		}
		if in, ok := inputs.Get(r, run.InputsCID); !ok || in.AccountingCID != run.AccountingCID {
			return wrong(slots, slot, "input %s is missing, or is another one", run.InputsCID)
		}
		if err := checkRun(r, slot, &run); err != nil {
			return err
		}
	}
	return nil
}

// checkRun checks what was computed and paid of a run.
func checkRun(r store.Reader, slot string, run *Run) error {
	for _, kind := range run.todo() {
		if !todos.Has(r, piece{run.RunKey, kind}) {
			return wrong(slots, slot, "is %s, and rw/todo has no row %d of it", run.State, kind)
		}
	}
	if run.State == Accepted {
		return nil
	}
	if !slices.Contains(final, run.State) {
		return wrong(slots, slot, "has the state %q", run.State)
	}
	roots := sealedOf(r, run).Roots
	for c := range uint32(len(roots)) {
		readChunk(r, run.RunKey, roots, c)
		if done := c < run.Acked; done != intents.Has(r, piece{run.RunKey, c}) {
			return wrong(slots, slot, "transaction %d of %d: %d are done, and rw/intent does not agree", c, run.Transactions, run.Acked)
		}
	}
	return nil
}

// checkSealed looks for the slot of each run that was sealed. checkSlots has compared the two.
func checkSealed(r store.Reader) error {
	for key, row := range sealed.All(r) {
		var of struct {
			Tenant string `json:"tenant"`
			Epoch  string `json:"epoch_id"`
		}
		if err := json.Unmarshal(row.Header, &of); err != nil {
			return wrong(sealed, key, "header: %w", err)
		}
		if run, ok := slots.Get(r, scoped(of.Tenant, of.Epoch)); !ok || run.RunKey != key {
			return wrong(sealed, key, "epoch %s of %s has no run, or another one", of.Epoch, of.Tenant)
		}
	}
	return nil
}

// checkAllocations takes every row apart. Rows of a run that failed stay where they were staged.
func checkAllocations(r store.Reader) error {
	for at, raw := range allocs.All(r) {
		if _, _, ok := cutChunk(at.id, at.n, raw); !ok {
			return wrong(allocs, at, "cannot be read")
		}
	}
	return nil
}

func checkIntents(r store.Reader) error {
	for at, one := range intents.All(r) {
		row, ok := sealed.Get(r, at.id)
		if !ok || int(at.n) >= len(row.Roots) || one.Index != at.n {
			return wrong(intents, at, "is of no run that was sealed")
		}
		if one.Key != record.IntentKey(at.id, record.Commitment(row.Header), at.n, row.Roots[at.n]) {
			return wrong(intents, at, "has a key that is not its own")
		}
	}
	return nil
}

func checkTodos(r store.Reader) error {
	for at, slot := range todos.All(r) {
		if run, ok := slots.Get(r, string(slot)); !ok || run.RunKey != at.id || at.n > toWrite {
			return wrong(todos, at, "is of no run")
		}
	}
	return nil
}
