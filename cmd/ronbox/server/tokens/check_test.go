package tokens

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"ronbox/store"
	"ronbox/store/storetest"
)

// rawRow writes or deletes a row without encoding it.
type rawRow struct{ key, value []byte }

func (rawRow) Kind() string { return "test.raw_row/1" }

func (c rawRow) Apply(_ store.Reader, _ store.Stamp, w *store.Writes) (done struct{}, err error) {
	if c.value == nil {
		w.Delete(Bucket, c.key)
	} else {
		w.Put(Bucket, c.key, c.value)
	}
	return done, nil
}

func rawRows(r store.Reader) (rows []rawRow) {
	for k, v := range r.Range(Bucket, nil, nil) {
		rows = append(rows, rawRow{bytes.Clone(k), append([]byte{}, v...)})
	}
	return rows
}

// checkAll calls Check and returns an error if a row does not decode.
func checkAll(r store.Reader) (err error) {
	defer func() {
		if row, ok := recover().(*store.RowError); ok {
			err = row
		}
	}()
	return Check(r)
}

// filledTx returns a transaction with rows in every table.
func filledTx(t *testing.T) *storetest.Tx {
	tx := storetest.NewTx(t, Bucket)
	mustDo(t, tx, addKid{testKid(0)})
	mustDo(t, tx, mintRow("A", testKid(0), 5))
	mustDo(t, tx, rotateKid{Key: testKid(1)})
	mustDo(t, tx, revoke{What: revokeTID, Value: "Z", Until: testEpoch.UnixNano()})
	mustDo(t, tx, setRoot{Row: rootRow{Format: format}})
	return tx
}

// Check detects a flipped bit in a key or a value, and a missing row.
func TestCheckFindsFlips(t *testing.T) {
	tx := filledTx(t)
	rows := rawRows(tx.Reader())
	if len(rows) != 9 {
		t.Fatalf("%d rows", len(rows))
	}
	if err := checkAll(tx.Reader()); err != nil {
		t.Fatal(err)
	}
	for _, row := range rows {
		for bit := range 8 * (len(row.key) + len(row.value)) {
			bad := rawRow{bytes.Clone(row.key), append([]byte{}, row.value...)}
			if at := bit / 8; at < len(row.key) {
				bad.key[at] ^= 1 << (bit % 8)
			} else {
				bad.value[at-len(row.key)] ^= 1 << (bit % 8)
			}
			mustDo(t, tx, rawRow{row.key, nil})
			mustDo(t, tx, bad)
			if checkAll(tx.Reader()) == nil {
				t.Errorf("row %q, bit %d: not found", row.key, bit)
			}
			mustDo(t, tx, rawRow{bad.key, nil})
			mustDo(t, tx, row)
		}
	}
	if err := checkAll(tx.Reader()); err != nil {
		t.Errorf("the rows were put back: %v", err)
	}
}

// Rows without checksums, from an older program, can be read. They get checksums in several steps,
// a bounded number of rows at a time.
func TestRowsWithoutSums(t *testing.T) {
	tx := filledTx(t)
	for n := range 2 * sweepRows {
		mustDo(t, tx, mintRow(fmt.Sprintf("B%04d", n), testKid(1), 5))
	}
	want := rawRows(tx.Reader())
	for _, row := range want {
		switch {
		case string(row.key) == rootKey:
			mustDo(t, tx, rawRow{row.key, nil})
		case len(row.value) > 0:
			value, err := store.CutSum(row.key, row.value)
			if err != nil {
				t.Fatalf("%s: %v", row.key, err)
			}
			old := bytes.Clone(value)
			old[0] = 1
			mustDo(t, tx, rawRow{row.key, old})
		}
	}
	if err := checkAll(tx.Reader()); err != nil {
		t.Errorf("an older file: %v", err)
	}
	steps := 0
	for next, more := "", true; more; more = next != "" {
		next = mustDo(t, tx, setRoot{next, rootRow{Format: format}})
		steps++
	}
	got := rawRows(tx.Reader())
	for i, row := range want {
		if i >= len(got) || !bytes.Equal(got[i].key, row.key) || !bytes.Equal(got[i].value, row.value) {
			t.Fatalf("row %s after %d steps", row.key, steps)
		}
	}
	if steps < 3 {
		t.Errorf("%d steps", steps)
	}
}

// A layout of a newer program is refused by its version number.
func TestNewerLayout(t *testing.T) {
	tx := filledTx(t)
	mustDo(t, tx, newerLayout{})
	if err := checkAll(tx.Reader()); !errors.Is(err, store.ErrSchema) {
		t.Errorf("check: %v", err)
	}
}

type newerLayout struct{}

func (newerLayout) Kind() string { return "test.newer_layout/1" }

func (newerLayout) Apply(_ store.Reader, _ store.Stamp, w *store.Writes) (done struct{}, err error) {
	roots.Put(w, rootKey, rootRow{Format: format + 1})
	return done, nil
}

// A secret is known while tokens of its epoch may live. A file without recorded secrets accepts any
// secret.
func TestSecretsKnown(t *testing.T) {
	var row rootRow
	if !row.knows([]byte("a"), 1) {
		t.Error("an older file refuses its secret")
	}
	for n := range maxSecrets + 1 {
		row = row.with(checkValue([]byte{byte(n)}), 1)
	}
	row = row.with(checkValue([]byte{2}), 1)
	for n, want := range map[byte]bool{0: false, 1: true, 2: true, maxSecrets: true, maxSecrets + 1: false} {
		if row.knows([]byte{n}, 1) != want {
			t.Errorf("secret %d is known: %v", n, !want)
		}
	}
	if len(row.Secrets) != maxSecrets || !row.knows([]byte("b"), 2) {
		t.Errorf("%d secrets, or an epoch that no token is of", len(row.Secrets))
	}
	if row = row.with(checkValue([]byte("b")), 2); len(row.Secrets) != 1 || row.knows([]byte{2}, 2) {
		t.Errorf("a new epoch: %+v", row)
	}
}
