package rewarder

import (
	"fmt"
	"slices"

	"github.com/go-json-experiment/json"

	"ronbox/appliance/b3"
	"ronbox/engines/rewarder/record"
	"ronbox/store"
)

// Checks returns the checks of the rewarder's rows: every row of every bucket decodes, and the rows
// that it refers to exist and agree with it.
func Checks() []store.Check { return []store.Check{{Name: service, Run: check}} }

func check(r store.Reader) error {
	for _, one := range []func(store.Reader) error{
		checkPolicies, checkUploads, checkChunks, checkInputs, checkSlots, checkSealed,
		checkAllocations, checkIntents, checkParked, checkStarted, checkTodos,
	} {
		if err := one(r); err != nil {
			return err
		}
	}
	return nil
}

// wrong returns a RowError for a row that decodes but contradicts other rows.
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

// checkChunks compares the rows of usage with their uploads: no chunk is beyond the end of its
// upload, and each chunk has the expected number of rows, in order.
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
			return wrong(chunks, at, "belongs to no upload")
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
			return wrong(inputs, cid, "upload %s is missing or has other rows", in.Upload)
		}
	}
	return nil
}

func checkSlots(r store.Reader) error {
	for slot, run := range slots.All(r) {
		if slot != scoped(run.Tenant, run.Epoch) ||
			run.RunKey != record.RunKey(run.Epoch, run.PolicyHash, run.InputsCID) {
			return wrong(slots, slot, "is not the run of its key")
		}
		if run.State == Failed {
			continue // its input may be gone
		}
		if doc, ok := policies.Get(r, scoped(run.Tenant, run.PolicyID)); !ok || doc.Hash != run.PolicyHash {
			return wrong(slots, slot, "policy %s is missing or differs", run.PolicyID)
		}
		if in, ok := inputs.Get(r, run.InputsCID); !ok || in.AccountingCID != run.AccountingCID {
			return wrong(slots, slot, "input %s is missing or differs", run.InputsCID)
		}
		if err := checkRun(r, slot, &run); err != nil {
			return err
		}
	}
	return nil
}

// checkRun checks the computed and paid state of a run.
func checkRun(r store.Reader, slot string, run *Run) error {
	for _, kind := range todoOf(run) {
		if kind != paused && !todos.Has(r, piece{run.RunKey, kind}) {
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
			return wrong(slots, slot, "transaction %d of %d: %d are done, and rw/intent does not agree", c,
				run.Transactions, run.Acked)
		}
	}
	return nil
}

// checkSealed checks that each sealed row has a slot. checkSlots compares the two.
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

// checkAllocations decodes every row. A failed run leaves its staged rows behind.
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
			return wrong(intents, at, "belongs to no sealed run")
		}
		if one.Key != record.IntentKey(at.id, record.Commitment(row.Header), at.n, row.Roots[at.n]) {
			return wrong(intents, at, "has the key of another intent")
		}
	}
	return nil
}

// checkParked compares the parked payees with the allocations, and their sums with the slots.
func checkParked(r store.Reader) error {
	sums := map[b3.Digest]tally{}
	for at, row := range parked.All(r) {
		header, ok := sealed.Get(r, at.id)
		c := at.n / record.ChunkRows
		if !ok || int(c) >= len(header.Roots) || row.Index != uint64(at.n) {
			return wrong(parked, at, "belongs to no sealed run")
		}
		all, _ := readChunk(r, at.id, header.Roots, c)
		if i := int(at.n % record.ChunkRows); i >= len(all) || all[i].Actor != row.Actor ||
			all[i].Amount != amountOf(row.Amount) {
			return wrong(parked, at, "is not the allocation of its number")
		}
		t := sums[at.id]
		t.count(&row)
		sums[at.id] = t
	}
	for slot, run := range slots.All(r) {
		if t := sums[run.RunKey]; t.held != run.Parked || t.parked != amountOf(run.ParkedMinor) {
			return wrong(slots, slot, "has %d parked payees, and rw/parked has %d", run.Parked, t.held)
		}
		if run.PaidMinor == "" || run.Parked == 0 && run.State != Settled {
			continue
		}
		if rest, ok := amountOf(run.PayoutMinor).Sub(plus(amountOf(run.PaidMinor), amountOf(run.ParkedMinor))); !ok ||
			!rest.IsZero() && run.Acked == run.Transactions {
			return wrong(slots, slot, "paid %s and parked %s are not its payout, %s", run.PaidMinor, run.ParkedMinor,
				run.PayoutMinor)
		}
	}
	return nil
}

// checkStarted decodes every row. No other row refers to them.
func checkStarted(r store.Reader) error {
	for token, n := range started.All(r) {
		if n == 0 {
			return wrong(started, token, "is 0")
		}
	}
	return nil
}

func checkTodos(r store.Reader) error {
	for at, slot := range todos.All(r) {
		if run, ok := slots.Get(r, string(slot)); !ok || run.RunKey != at.id || at.n > paused {
			return wrong(todos, at, "belongs to no run")
		}
	}
	return nil
}
