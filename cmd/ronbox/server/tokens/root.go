package tokens

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"ronbox/appliance/b3"
	"ronbox/store"
)

// maxSecrets bounds the number of stored check values. A secret older than those counts as wrong.
const maxSecrets = 8

// errWrongSecret is returned for a node secret that no token of the file was minted under.
var errWrongSecret = fmt.Errorf("%w: it belongs to another database, and all tokens of this one would be "+
	"refused", ErrSecret)

// checkValue returns a value that identifies a secret without revealing it.
func checkValue(secret []byte) b3.Digest {
	return b3.Derive("ronbox node secret check value v1").Sum(secret)
}

// CheckSecret returns ErrSecret if the tokens of the file were minted under other secrets. epoch is
// the auth epoch of the file.
func CheckSecret(r store.Reader, secret []byte, epoch uint64) error {
	row, err := readRoot(r)
	if err == nil && !row.knows(secret, epoch) {
		err = errWrongSecret
	}
	return err
}

// readRoot reads the root row, or the zero row of a file without one. It returns an error for an
// unknown layout.
func readRoot(r store.Reader) (rootRow, error) {
	row, _ := roots.Get(r, rootKey)
	if row.Format > format {
		return row, fmt.Errorf("the layout of the token keys is %d, this program knows %d: %w", row.Format, format,
			store.ErrSchema)
	}
	return row, nil
}

// knows reports whether the secret belongs to the file. A file without secrets of the epoch accepts
// any secret: no token depends on it.
func (row rootRow) knows(secret []byte, epoch uint64) bool {
	return row.Epoch != epoch || len(row.Secrets) == 0 || slices.Contains(row.Secrets, checkValue(secret))
}

// with returns the row after the secret with this check value has become current.
func (row rootRow) with(check b3.Digest, epoch uint64) rootRow {
	var kept []b3.Digest
	if row.Epoch == epoch {
		kept = slices.DeleteFunc(slices.Clone(row.Secrets), func(d b3.Digest) bool { return d == check })
	}
	kept = append(kept, check)
	return rootRow{Format: row.Format, Epoch: epoch, Secrets: kept[max(0, len(kept)-maxSecrets):]}
}

// AddSecret replaces a lost node secret, which stays known, and appends note to the audit chain.
func (i *Issuer) AddSecret(ctx context.Context, secret []byte, note store.Event) error {
	c := addSecret{Check: checkValue(secret), Epoch: i.store.Info().AuthEpoch, Note: note}
	if _, err := store.Commit(ctx, i.store, store.Control, c); err != nil {
		return fmt.Errorf("add node secret: %w", err)
	}
	return nil
}

// addSecret makes a check value the current one.
type addSecret struct {
	Check b3.Digest
	Epoch uint64
	Note  store.Event
}

// Kind implements store.Command.
func (addSecret) Kind() string { return "node.add_secret/1" }

// Apply writes the root row.
func (c addSecret) Apply(r store.Reader, _ store.Stamp, w *store.Writes) (done struct{}, err error) {
	row, err := readRoot(r)
	if err != nil {
		return done, err
	}
	roots.Put(w, rootKey, row.with(c.Check, c.Epoch))
	w.Audit(c.Note)
	return done, nil
}

// settle records the secret in the file and adds checksums to rows of an older file. If the file is
// full, a later boot does both.
func (i *Issuer) settle(ctx context.Context, row rootRow) (err error) {
	if !row.knows(i.secret, i.epoch) {
		return errWrongSecret
	}
	want := row.with(checkValue(i.secret), i.epoch)
	want.Format = format
	if row.Format == format && row.Epoch == want.Epoch && slices.Equal(row.Secrets, want.Secrets) {
		return nil
	}
	if n := len(row.Secrets); row.Epoch == i.epoch && n > 0 && row.Secrets[n-1] != checkValue(i.secret) {
		i.log.Warn("node secret is an earlier one", "effect", "tokens minted under the later ones are void")
	}
	for next, more := "", true; more; more = next != "" {
		if next, err = store.Commit(ctx, i.store, store.Control, setRoot{From: next, Row: want}); err != nil {
			break
		}
	}
	if err != nil && !errors.Is(err, store.ErrFull) {
		return fmt.Errorf("settle token keys: %w", err)
	}
	return nil
}

// setRoot writes the root row after the rows of an older program have got their checksums, at most
// sweepRows at a time.
type setRoot struct {
	From string
	Row  rootRow
}

// Kind implements store.Command.
func (setRoot) Kind() string { return "node.set_auth_root/1" }

// Apply rewrites rows. It returns the next key, or "" at the end.
func (c setRoot) Apply(r store.Reader, _ store.Stamp, w *store.Writes) (next string, err error) {
	row, err := readRoot(r)
	if err != nil {
		return "", err
	}
	if row.Format < format {
		next = sumRows(r, w, c.From)
	}
	if next == "" {
		roots.Put(w, rootKey, c.Row)
	}
	return next, nil
}

// sumRows rewrites rows from a key on, and returns the next key.
func sumRows(r store.Reader, w *store.Writes, from string) (next string) {
	rows := 0
	for raw := range r.Range(Bucket, []byte(from), nil) {
		key := string(raw)
		if rows++; rows > sweepRows {
			return key
		}
		switch key[:min(len(kidPrefix), len(key))] {
		case kidPrefix:
			again(r, w, kids, kidID(key))
		case tokenPrefix:
			again(r, w, tokens, tokenID(key))
		case revPrefix:
			again(r, w, revocations, revID(key))
		case totalPrefix:
			again(r, w, totals, totalID(key))
		}
	}
	return ""
}

func again[K, V any](r store.Reader, w *store.Writes, t store.Table[K, V], id K) {
	row, _ := t.Get(r, id)
	t.Put(w, id, row)
}
