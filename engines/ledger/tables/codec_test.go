package tables

import (
	"bytes"
	"encoding/hex"
	"errors"
	"os"
	"strings"
	"testing"

	"ronbox/store"
	"ronbox/store/storetest"
)

// reread decodes bytes and encodes the result. It returns nil if the bytes do not decode.
func reread[V any](c store.Value[V]) func(b []byte) ([]byte, error) {
	return func(b []byte) ([]byte, error) {
		v, err := c.Decode(b)
		if err != nil {
			return nil, nil
		}
		return c.Encode(v)
	}
}

func rekey[K any](c store.Key[K]) func(b []byte) ([]byte, error) {
	return func(b []byte) ([]byte, error) {
		k, err := c.Decode(b)
		if err != nil {
			return nil, nil
		}
		return c.Append([]byte{}, k), nil
	}
}

// FuzzRows decodes arbitrary bytes as a row of every kind. A row that decodes encodes to the same
// bytes.
func FuzzRows(f *testing.F) {
	golden, err := os.ReadFile("testdata/rows.txt")
	if err != nil {
		f.Fatal(err)
	}
	for _, word := range strings.Fields(string(golden)) {
		if b, err := hex.DecodeString(word); err == nil {
			f.Add(b)
		}
	}
	codecs := map[string]func([]byte) ([]byte, error){
		"number":    reread(u64Value()),
		"text":      reread(textValue()),
		"digest":    reread(digestValue()),
		"head":      reread(headValue()),
		"balance":   reread(fixed(balanceV1, balanceSize, putBalance, getBalance)),
		"account":   reread(fixed(accountV1, accountSize, putAccount, getAccount)),
		"hold":      reread(fixed(1, holdSize, putHold, getHold)),
		"state key": rekey(stateKeys()),
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for name, again := range codecs {
			if got, err := again(b); err != nil || got != nil && !bytes.Equal(got, b) {
				t.Errorf("%s: %x is written again as %x, %v", name, b, got, err)
			}
		}
	})
}

// Invalid values are refused for every kind of row.
func TestRowsAreStrict(t *testing.T) {
	for name, again := range map[string]func() ([]byte, error){
		"an unknown version": func() ([]byte, error) { return reread(u64Value())([]byte{2, 0, 0, 0, 0, 0, 0, 0, 0}) },
		"a short number":     func() ([]byte, error) { return reread(u64Value())([]byte{1, 0}) },
		"a text of none":     func() ([]byte, error) { return reread(textValue())([]byte{1}) },
		"a text of another":  func() ([]byte, error) { return reread(textValue())([]byte{2, 'a'}) },
		"a hold closed by 5": func() ([]byte, error) {
			b := append([]byte{1}, make([]byte, holdSize)...)
			b[53] = 5
			return reread(fixed(1, holdSize, putHold, getHold))(b)
		},
		"a hold closed by no record": func() ([]byte, error) {
			b := append([]byte{1}, make([]byte, holdSize)...)
			b[53] = 9
			return reread(fixed(1, holdSize, putHold, getHold))(b)
		},
		"an account with a flag that is none": func() ([]byte, error) {
			b := append([]byte{accountV1}, make([]byte, accountSize)...)
			b[accountSize] = 16
			return reread(fixed(accountV1, accountSize, putAccount, getAccount))(b)
		},
		"a head before 1970": func() ([]byte, error) {
			b := append([]byte{1}, bytes.Repeat([]byte{0xff}, 76)...)
			return reread(headValue())(b)
		},
	} {
		if got, err := again(); got != nil || err != nil {
			t.Errorf("%s is taken: %x, %v", name, got, err)
		}
	}
}

// An invalid key ends a walk with an error.
func TestKeysAreStrict(t *testing.T) {
	for name, walk := range map[string]func(r store.Reader, w *store.Writes) func(r store.Reader){
		"an asset beyond its refs": func(_ store.Reader, w *store.Writes) func(store.Reader) {
			w.Put(bNames, []byte("sron"), append([]byte{1}, bytes.Repeat([]byte{1}, 8)...))
			return func(r store.Reader) { AssetRef(r, "ron") }
		},
		"a short ref": func(_ store.Reader, w *store.Writes) func(store.Reader) {
			w.Put(bRefs, []byte("a1"), []byte{1, 'x'})
			return func(r store.Reader) {
				for range Accounts(r, 0) {
				}
			}
		},
		"a short end": func(_ store.Reader, w *store.Writes) func(store.Reader) {
			w.Put(bEnds, []byte("a1"), nil)
			return func(r store.Reader) {
				for range HoldEnds(r, HoldEnd{}) {
				}
			}
		},
		"a short mark": func(_ store.Reader, w *store.Writes) func(store.Reader) {
			w.Put(bMarks, []byte("a1"), nil)
			return func(r store.Reader) {
				for range Marks(r) {
				}
			}
		},
		"a short asset": func(_ store.Reader, w *store.Writes) func(store.Reader) {
			w.Put(Scales, []byte("a1"), nil)
			return func(r store.Reader) {
				for range AllScales(r) {
				}
			}
		},
		"a short id": func(_ store.Reader, w *store.Writes) func(store.Reader) {
			w.Put(bOnce, []byte("o1"), nil)
			return func(r store.Reader) {
				for range Onces(r) {
				}
			}
		},
		"a short state": func(_ store.Reader, w *store.Writes) func(store.Reader) {
			w.Put(bState, []byte("o1"), nil)
			return func(r store.Reader) {
				for range States(r, StateKey{}) {
				}
			}
		},
		"a recent account that says it is a balance": func(_ store.Reader, w *store.Writes) func(store.Reader) {
			w.Put(bRecent, make([]byte, 12), append([]byte{balanceV1}, make([]byte, balanceSize)...))
			return func(r store.Reader) {
				for range Recents(r, nil) {
				}
			}
		},
	} {
		tx := storetest.NewTx(t, Buckets()...)
		var read func(store.Reader)
		do(t, tx, func(r store.Reader, w *store.Writes) { read = walk(r, w) })
		if _, err := storetest.Do(tx, write(func(r store.Reader, _ *store.Writes) { read(r) })); !errors.Is(
			err,
			store.ErrCorrupt,
		) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
