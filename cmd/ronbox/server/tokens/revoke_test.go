package tokens

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"ronbox/httpapi"
	"ronbox/httpapi/auth"
	nodehttp "ronbox/httpapi/node"
	"ronbox/store"
	"ronbox/store/storetest"
)

func TestRevoke(t *testing.T) {
	long := testEpoch.Add(24 * time.Hour).UnixNano()
	for _, tt := range []struct {
		doc, what, value string
		wantValue        string
		wantUntil        int64
		void             []string // of tokens A (key 0, tenant t), B (key 1, tenant t), C (key 1, tenant u)
		kept             string   // state of key 1
	}{
		{"one token, until it expires", revokeTID, "A", "A", testEpoch.Add(time.Hour).UnixNano(), []string{"A"},
			kidActive},
		{"a token nobody knows, as long as any", revokeTID, "Z", "Z", long, nil, kidActive},
		{"a tenant", revokeTenant, "t", "t", long, []string{"A", "B"}, kidActive},
		{"a key that verifies", revokeKid, "K000", "K000", long, []string{"A"}, kidActive},
		{"the key that mints: another takes its place", revokeKid, "K001", "K001", long, []string{"B", "C"},
			kidRetired},
		{"all", revokeEpoch, "", "7", long, []string{"A", "B", "C"}, kidRetired},
	} {
		t.Run(tt.doc, func(t *testing.T) {
			tx := storetest.NewTx(t, Bucket)
			mustDo(t, tx, addKid{testKid(0)})
			mustDo(t, tx, mintRow("A", testKid(0), 1))
			mustDo(t, tx, rotateKid{Key: testKid(1)})
			mustDo(t, tx, mintRow("B", testKid(1), 1))
			other := mintRow("C", testKid(1), 1)
			other.Row.Tenant = "u"
			mustDo(t, tx, other)
			c := revoke{What: tt.what, Value: tt.value, Epoch: 7, Until: long, Key: testKid(2), Reason: "lost"}
			got := mustDo(t, tx, c)
			if got.value != tt.wantValue || got.until != tt.wantUntil || got.already || len(got.revoked) != 1 {
				t.Errorf("%+v", got)
			}
			r := tx.Reader()
			void := []string{}
			for _, tid := range []string{"A", "B", "C"} {
				id := tokenPrefix + tokenID(tid)
				if row, _ := tokens.Get(r, id); row.void(r, id, 0) {
					void = append(void, tid)
				}
			}
			if fmt.Sprint(void) != fmt.Sprint(append([]string{}, tt.void...)) {
				t.Errorf("void are %v, want %v", void, tt.void)
			}
			all := readKids(r)
			if i := findKid(all, testKid(1).ID); all[i].State != tt.kept || active(all) < 0 {
				t.Errorf("%+v", all)
			}
			c.Key = testKid(3)
			if again := mustDo(t, tx, c); again.already != (tt.what == revokeTID || tt.what == revokeKid) {
				t.Errorf("again: %+v", again)
			}
		})
	}
}

func TestRevokeRefusals(t *testing.T) {
	tx := storetest.NewTx(t, Bucket)
	mustDo(t, tx, addKid{testKid(0)})
	if _, err := storetest.Do(tx, revoke{What: revokeKid, Value: "nobody"}); !errors.Is(err, httpapi.ErrNoSuch) {
		t.Errorf("a key that is none: %v", err)
	}
	mustDo(t, tx, fill{totalRevocations, maxRevocations})
	var conflict *nodehttp.ConflictError
	if _, err := storetest.Do(tx, revoke{What: revokeTID, Value: "A"}); !errors.As(err, &conflict) {
		t.Errorf("one too many: %v", err)
	}
	mustDo(t, tx, fill{totalTokens, maxTokens})
	if _, err := storetest.Do(tx, mintRow("A", testKid(0), 1)); !errors.As(err, &conflict) {
		t.Errorf("one token too many: %v", err)
	}
}

// A sweep removes expired rows, a bounded number at once, and ends the overlap of rotated keys.
func TestSweep(t *testing.T) {
	tx := storetest.NewTx(t, Bucket)
	mustDo(t, tx, addKid{testKid(0)})
	for i := range sweepRows + 5 {
		mustDo(t, tx, mintRow(fmt.Sprint("old", i), testKid(0), -1))
	}
	mustDo(t, tx, mintRow("young", testKid(0), 1))
	mustDo(t, tx, revoke{What: revokeTID, Value: "old1", Until: testEpoch.Add(-time.Hour).UnixNano()})
	mustDo(t, tx, revoke{What: revokeTID, Value: "young"})
	first := mustDo(t, tx, sweepExpired{Before: testEpoch.UnixNano()})
	second := mustDo(t, tx, sweepExpired{Before: testEpoch.UnixNano()})
	if !first.more || second.more || first.tokens+second.tokens != sweepRows+5 ||
		first.revocations+second.revocations != 1 {
		t.Errorf("%+v, then %+v", first, second)
	}
	later := sweepExpired{Before: testEpoch.Add(2 * time.Hour).UnixNano()}
	if (sweepExpired{Before: testEpoch.UnixNano()}).due(tx.Reader()) || !later.due(tx.Reader()) {
		t.Error("due is not what a sweep would find")
	}
	r := tx.Reader()
	if !tokens.Has(r, "tok/young") || !revocations.Has(r, newRevID(revokeTID, "young")) || tokens.Has(r, "tok/old3") {
		t.Error("the wrong rows are left")
	}
}

// fill sets a sum without the rows.
type fill struct {
	id totalID
	n  uint64
}

func (fill) Kind() string { return "node.fill/1" }

func (c fill) Apply(_ store.Reader, _ store.Stamp, w *store.Writes) (struct{}, error) {
	totals.Put(w, c.id, c.n)
	return struct{}{}, nil
}

// A revocation outlasts every token that it revokes, even a token minted while max_ttl was longer.
func TestRevocationOutlastsTokens(t *testing.T) {
	for _, what := range []string{revokeTenant, revokeTID, revokeEpoch} {
		tx := storetest.NewTx(t, Bucket)
		mustDo(t, tx, addKid{testKid(0)})
		mustDo(t, tx, mintRow("A", testKid(0), 30))
		mustDo(t, tx, rotateKid{Key: testKid(1)})
		value := map[string]string{revokeTenant: "t", revokeTID: "Z"}[what]
		short := testEpoch.Add(time.Hour).UnixNano()
		got := mustDo(t, tx, revoke{What: what, Value: value, Until: short, Key: testKid(2)})
		if want := testEpoch.Add(30 * time.Hour).UnixNano(); got.until != want {
			t.Errorf("%s: until %v, a token lives until %v", what, time.Unix(0, got.until), time.Unix(0, want))
		}
	}
}

// Repeating a revocation does not use more memory.
func TestKeyringHoldsEachRevocationOnce(t *testing.T) {
	k := New(Deps{Auth: auth.New(auth.DefaultConfig(), nil)})
	k.secret = make([]byte, secretLen)
	k.rebuild()
	for i := range 5 {
		r := auth.Revocation{What: revokeTenant, Value: "t", At: testEpoch.Add(time.Duration(i) * time.Hour)}
		k.apply(change{revoked: []auth.Revocation{r}})
	}
	if len(k.revoked) != 1 {
		t.Errorf("%d revocations are held", len(k.revoked))
	}
	k.apply(change{purged: []revID{newRevID(revokeTenant, "t")}})
	if len(k.revoked) != 0 {
		t.Errorf("purged, and still held: %v", k.revoked)
	}
}
