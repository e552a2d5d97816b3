package registry_test

import (
	"errors"
	"fmt"
	"reflect"
	"sync"
	"testing"

	"ronbox/appliance/b3"
	"ronbox/engines/registry/document"
	"ronbox/engines/registry/record"
	"ronbox/engines/registry/registrytest"
)

func TestProposalsPageByPage(t *testing.T) {
	t.Parallel()
	r := registrytest.New(t).Start()
	r.Genesis(newSigners(1, 1))
	var want []string
	for i := range 7 {
		want = append(want, r.Propose(2, fmt.Sprintf("p%d", i)).ID)
	}
	var got []string
	for cursor := ""; ; {
		page, err := r.Engine.Proposals(r.Ctx(), cursor, 3)
		if err != nil || len(page.Proposals) > 3 {
			t.Fatalf("page behind %q: %d, %v", cursor, len(page.Proposals), err)
		}
		for _, p := range page.Proposals {
			got = append(got, p.ID)
		}
		if cursor = page.Next; cursor == "" {
			break
		}
	}
	if seen := map[string]bool{}; len(got) != len(want) {
		t.Errorf("%d proposals, want %d", len(got), len(want))
	} else {
		for i, id := range got {
			if seen[id] || i > 0 && got[i-1] >= id {
				t.Errorf("%s is out of order", id)
			}
			seen[id] = true
		}
	}
	var field *record.FieldError
	if _, err := r.Engine.Proposals(r.Ctx(), "junk", 0); !errors.As(err, &field) || field.Field != "cursor" {
		t.Errorf("a made-up cursor: %v", err)
	}
}

func TestPayloadOfEndedProposals(t *testing.T) {
	t.Parallel()
	r, s := registrytest.New(t).Start(), newSigners(1, 1)
	r.Genesis(s)
	done, gone := r.Propose(2, "b"), r.Propose(2, "c")
	r.Approve(done, s.Keys...)
	r.Commit(done)
	if raw, err := r.Engine.ProposalPayload(r.Ctx(), done.ID); err != nil || b3.Sum(raw) != done.PayloadB3 {
		t.Errorf("committed: %v", err)
	}
	if _, err := r.Engine.ProposalPayload(r.Ctx(), gone.ID); !errors.Is(err, document.ErrConflict) {
		t.Errorf("stale: %v", err)
	}
	if st, err := r.Engine.Status(r.Ctx(), 2); err != nil || st != (document.VersionStatus{}) {
		t.Errorf("status = %+v, %v", st, err)
	}
	if _, err := r.Engine.Status(r.Ctx(), 3); !errors.Is(err, document.ErrNotFound) {
		t.Errorf("status of what is not there: %v", err)
	}
}

// An ended proposal shows how and when it ended, and only members that are still known.
func TestEndedProposal(t *testing.T) {
	t.Parallel()
	r, s := registrytest.New(t).Start(), newSigners(1, 1)
	r.Genesis(s)
	p := r.Propose(2, "a")
	if err := r.Engine.Withdraw(r.Ctx(), alice, p.ID, ""); err != nil {
		t.Fatal(err)
	}
	got, err := r.Engine.Proposal(r.Ctx(), p.ID)
	if err != nil || got.EndedAt == "" {
		t.Fatalf("%+v, %v", got, err)
	}
	got.EndedAt = ""
	if want := (document.Proposal{ID: p.ID, State: document.StateWithdrawn, Version: 2, PayloadB3: p.PayloadB3}); !reflect.DeepEqual(
		got,
		want,
	) {
		t.Errorf("ended: %+v, want %+v", got, want)
	}
}

// Exactly one of many concurrent genesis calls begins the log.
func TestOneGenesis(t *testing.T) {
	t.Parallel()
	r, s := registrytest.New(t).Start(), newSigners(1, 1)
	var wg sync.WaitGroup
	results := make([]error, 8)
	for i := range results {
		raw, approvals := r.GenesisPayload(s, fmt.Sprintf("item%d", i))
		wg.Go(func() { _, results[i] = r.Engine.Genesis(r.Ctx(), alice, raw, approvals, "") })
	}
	wg.Wait()
	won := 0
	for _, err := range results {
		if err == nil {
			won++
		} else if !errors.Is(err, document.ErrConflict) {
			t.Errorf("a loser hears %v", err)
		}
	}
	if won != 1 || r.Engine.Head().Head.Version != 1 {
		t.Errorf("%d won, HEAD %d", won, r.Engine.Head().Head.Version)
	}
}

// Many clients of one stack, in any order, with repeats: each version is committed once.
func TestNoDoubleCommit(t *testing.T) {
	t.Parallel()
	r, s := registrytest.New(t).Start(), newSigners(1, 1)
	r.Genesis(s)
	stack := r.Stack(4)
	for _, p := range stack {
		r.Approve(p, s.Keys...)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	first := map[uint64]int{}
	for range 8 {
		wg.Go(func() {
			for _, p := range stack {
				for {
					c, err := r.Engine.Commit(r.Ctx(), alice, p.ID, "")
					if errors.Is(err, record.ErrVersionSkew) {
						continue
					}
					if err != nil {
						t.Errorf("commit: %v", err)
					}
					mu.Lock()
					if !c.Replayed {
						first[c.Version]++
					}
					mu.Unlock()
					break
				}
			}
		})
	}
	wg.Wait()
	for v := uint64(2); v <= 5; v++ {
		if first[v] != 1 {
			t.Errorf("version %d was committed %d times", v, first[v])
		}
	}
}
