package tokens

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"ronbox/httpapi"
	"ronbox/httpapi/auth"
	nodehttp "ronbox/httpapi/node"
	"ronbox/store"
	"ronbox/store/storetest"
)

// testEpoch is the time of the first stamp of storetest.
var testEpoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func testKid(n int) freshKid {
	return freshKid{ID: kidID(fmt.Sprintf("%sK%03d", kidPrefix, n)), Salt: []byte(fmt.Sprint("salt", n))}
}

// addKid adds the first key only. A second call returns the existing key.
func TestAddKidOnce(t *testing.T) {
	tx := storetest.NewTx(t, Bucket)
	for n := range 2 {
		c, err := storetest.Do(tx, addKid{testKid(n)})
		if err != nil || len(c.keys) != 1 || c.keys[0].id != testKid(0).ID || c.keys[0].State != kidActive {
			t.Errorf("key %d: %+v, %v", n, c, err)
		}
	}
	if rows := readKids(tx.Reader()); len(rows) != 1 || string(rows[0].Salt) != "salt0" {
		t.Errorf("%+v", rows)
	}
}

func TestKidsAreFresh(t *testing.T) {
	a, errA := newKid(testEpoch)
	b, errB := newKid(testEpoch)
	if errA != nil || errB != nil || a.ID == b.ID || string(a.Salt) == string(b.Salt) || len(a.Salt) != saltLen {
		t.Errorf("%+v %+v %v %v", a, b, errA, errB)
	}
	if len(a.ID.kid()) != 26 {
		t.Errorf("kid %s is no ULID", a.ID.kid())
	}
}

// mintRow returns the command that adds a token of key k, which expires the given hours after the
// epoch.
func mintRow(tid string, k freshKid, hours int) addToken {
	return addToken{ID: tokenPrefix + tokenID(tid), Row: tokenRow{
		Kid: k.ID.kid(), Sub: "s", Tenant: "t", Scopes: []string{"registry.propose"}, IssuedAt: testEpoch.Unix(),
		ExpiresAt: testEpoch.Add(time.Duration(hours) * time.Hour).Unix(),
	}}
}

func mustDo[R any](t *testing.T, tx *storetest.Tx, c store.Command[R]) R {
	t.Helper()
	r, err := storetest.Do(tx, c)
	if err != nil {
		t.Fatalf("%s: %v", c.Kind(), err)
	}
	return r
}

// A rotated key verifies until the last token that it minted expires. Only the new key mints.
func TestRotationOverlaps(t *testing.T) {
	tx := storetest.NewTx(t, Bucket)
	mustDo(t, tx, addKid{testKid(0)})
	mustDo(t, tx, mintRow("A", testKid(0), 5))
	mustDo(t, tx, mintRow("B", testKid(0), 2))
	if c := mustDo(t, tx, rotateKid{Key: testKid(1), Due: int64(time.Hour)}); c.keys != nil {
		t.Errorf("a young key was rotated: %+v", c)
	}
	all := mustDo(t, tx, rotateKid{Key: testKid(1)}).keys
	if len(all) != 2 || all[0].State != kidVerify || all[0].VerifyUntil != testEpoch.Add(5*time.Hour).UnixNano() ||
		all[1].State != kidActive {
		t.Fatalf("%+v", all)
	}
	if _, err := storetest.Do(tx, mintRow("C", testKid(0), 1)); !errors.Is(err, errKeyMoved) {
		t.Errorf("a token of the old key: %v", err)
	}
	mustDo(t, tx, mintRow("C", testKid(1), 1))
	var conflict *nodehttp.ConflictError
	if _, err := storetest.Do(tx, retireKid{ID: testKid(1).ID}); !errors.As(err, &conflict) {
		t.Errorf("the active key was retired: %v", err)
	}
	if _, err := storetest.Do(tx, retireKid{ID: testKid(7).ID}); !errors.Is(err, httpapi.ErrNoSuch) {
		t.Errorf("a key that is none: %v", err)
	}
	mustDo(t, tx, retireKid{ID: testKid(0).ID})
	again := mustDo(t, tx, retireKid{ID: testKid(0).ID})
	if again.keys[0].State != kidRetired {
		t.Errorf("%+v", again)
	}
	r := tx.Reader()
	for tid, want := range map[string]bool{"A": true, "C": false} {
		row, _ := tokens.Get(r, tokenPrefix+tokenID(tid))
		if got := row.void(r, tokenPrefix+tokenID(tid), 0); got != want {
			t.Errorf("token %s is void: %v", tid, got)
		}
	}
}

// A rotation beyond maxKids keys is a conflict.
func TestTooManyKeys(t *testing.T) {
	tx := storetest.NewTx(t, Bucket)
	mustDo(t, tx, addKid{testKid(0)})
	for n := 1; n < maxKids; n++ {
		mustDo(t, tx, rotateKid{Key: testKid(n)})
	}
	var conflict *nodehttp.ConflictError
	if _, err := storetest.Do(tx, rotateKid{Key: testKid(maxKids)}); !errors.As(err, &conflict) {
		t.Errorf("key %d: %v", maxKids, err)
	}
}

// After any sequence of commands, one key mints, the sums match the rows, and each row that expires
// is indexed by its expiry.
func TestAuthRowsLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tx := storetest.NewTx(t, Bucket)
		if _, err := storetest.Do(tx, addKid{testKid(0)}); err != nil {
			t.Fatal(err)
		}
		pick := func(n int) freshKid { return testKid(rapid.IntRange(0, n).Draw(t, "key")) }
		for i := range rapid.IntRange(0, 30).Draw(t, "steps") {
			n := i + 1
			switch rapid.IntRange(0, 5).Draw(t, "what") {
			case 0:
				_, _ = storetest.Do(tx, rotateKid{Key: testKid(n)})
			case 1:
				_, _ = storetest.Do(tx, retireKid{ID: pick(n).ID})
			case 2, 3:
				_, _ = storetest.Do(tx, mintRow(fmt.Sprint(n), pick(n), rapid.IntRange(-2, 2).Draw(t, "hours")))
			case 4:
				what := rapid.SampledFrom([]string{revokeTID, revokeKid, revokeTenant, revokeEpoch}).Draw(t, "revoke")
				value := map[string]string{revokeTID: fmt.Sprint(pick(n).ID), revokeKid: pick(n).ID.kid(),
					revokeTenant: "t"}[what]
				until := testEpoch.Add(time.Duration(rapid.IntRange(-1, 1).Draw(t, "until")) * time.Hour)
				_, _ = storetest.Do(
					tx,
					revoke{What: what, Value: value, Key: testKid(1000 + n), Until: until.UnixNano()},
				)
			case 5:
				_, _ = storetest.Do(tx, sweepExpired{})
			}
			lawful(t, tx.Reader())
		}
	})
}

func lawful(t *rapid.T, r store.Reader) {
	if err := Check(r); err != nil {
		t.Fatal(err)
	}
	var mints int
	for _, k := range readKids(r) {
		if k.State == kidActive {
			mints++
		}
	}
	if mints != 1 {
		t.Fatalf("%d keys mint", mints)
	}
	var toks, revs, exps uint64
	for id, row := range tokens.Range(r, tokenPrefix, tokenPrefix+after) {
		toks++
		if !expiries.Has(r, expires(row.ExpiresAt, string(id))) {
			t.Fatalf("token %s never expires", id)
		}
	}
	for id, row := range revocations.Range(r, revPrefix, revPrefix+after) {
		revs++
		if !expiries.Has(r, expires(seconds(row.Until), string(id))) {
			t.Fatalf("revocation %s never expires", id)
		}
	}
	for range expiries.Range(r, expiryPrefix, expiryPrefix+after) {
		exps++
	}
	if total(r, totalTokens) != toks || total(r, totalRevocations) != revs || exps != toks+revs {
		t.Fatalf("%d tokens, %d revocations, %d expiries; sums %d, %d", toks, revs, exps, total(r, totalTokens),
			total(r, totalRevocations))
	}
}

// A bounded number of retired keys is kept, however often keys are rotated and retired.
func TestRetiredKeysAreBounded(t *testing.T) {
	tx := storetest.NewTx(t, Bucket)
	mustDo(t, tx, addKid{testKid(0)})
	for n := range 3 * maxKids {
		mustDo(t, tx, rotateKid{Key: testKid(n + 1)})
		all := mustDo(t, tx, retireKid{ID: testKid(n).ID}).keys
		if len(all) > 2*maxKids || active(all) < 0 || len(all) != len(readKids(tx.Reader())) {
			t.Fatalf("%d keys are kept", len(all))
		}
	}
	if all := readKids(tx.Reader()); all[len(all)-2].id != testKid(3*maxKids-1).ID {
		t.Error("the newest retired key is gone")
	}
}

// A token that was revoked before it is written is refused, so the issuer mints it again and never
// returns a revoked token.
func TestNoTokenIsBornVoid(t *testing.T) {
	tx := storetest.NewTx(t, Bucket)
	mustDo(t, tx, addKid{testKid(0)})
	mustDo(t, tx, revoke{What: revokeTenant, Value: "t"})
	if _, err := storetest.Do(tx, mintRow("A", testKid(0), 1)); !errors.Is(err, errKeyMoved) {
		t.Errorf("a token of a tenant that was revoked meanwhile: %v", err)
	}
	late := mintRow("A", testKid(0), 1)
	late.Row.IssuedAt = testEpoch.Add(time.Minute).Unix()
	mustDo(t, tx, late)
}

// The issuer is not ready without an active key, so callers do not mistake its errors for invalid
// tokens.
func TestReadyFollowsTheKeys(t *testing.T) {
	i := New(Deps{Auth: auth.New(auth.DefaultConfig(), nil)})
	i.secret = make([]byte, secretLen)
	if i.Ready() == nil {
		t.Error("ready before Load")
	}
	for _, state := range []string{kidActive, kidRetired, kidActive} {
		i.apply(change{keys: []tokenKey{{testKid(0).ID, kidRow{Salt: testKid(0).Salt, State: state}}}})
		if err := i.Ready(); (err == nil) != (state == kidActive) {
			t.Errorf("the key is %s: %v", state, err)
		}
	}
}
