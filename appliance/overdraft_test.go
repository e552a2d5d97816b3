package appliance

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"ronbox/httpapi/wire"
)

// Sizes of what tries to spend more than there is.
const (
	poorAccounts = 1000
	poorMost     = 100 // what one has at first, at most
	poorBatches  = 10
	poorBatch    = 500
)

// Five thousand transfers between a thousand accounts that have little, each of any amount: exactly those are done that plain
// arithmetic lets through, in the order in which they came, and in the end every account has what it says.
func TestOverdraft(t *testing.T) {
	d := rand.New(rand.NewPCG(seedFrom(t, "OVERDRAFT_SEED"), 0))
	cfg, _ := devConfig(t)
	r := start(t, cfg)
	have, nonce := make([]int, poorAccounts), make([]int, poorAccounts)
	var ops []string
	for i := range have {
		have[i] = 1 + d.IntN(poorMost)
		ops = append(ops, `{"op":"issue",`+issue(payer(i), strconv.Itoa(have[i]), uint64(i)+2)[1:])
	}
	r.batch("fund", "atomic", ops)
	refused := 0
	for b := range poorBatches {
		ops, want := ops[:0], make([]bool, poorBatch)
		for i := range want {
			from, amount := d.IntN(poorAccounts), 1+d.IntN(2*poorMost)
			to := (from + 1 + d.IntN(poorAccounts-1)) % poorAccounts
			ops = append(ops, `{"op":"transfer",`+pay(payer(from), payer(to), strconv.Itoa(amount), uint64(nonce[from])+1)[1:])
			if want[i] = amount <= have[from]; !want[i] {
				refused++
				continue
			}
			have[from], have[to], nonce[from] = have[from]-amount, have[to]+amount, nonce[from]+1
		}
		for i, got := range r.batch(fmt.Sprint("b", b), "independent", ops) {
			if done := got.Status == http.StatusOK; done != want[i] || !done && got.Error.Code != "INSUFFICIENT_FUNDS" {
				t.Fatalf("batch %d, op %d: %d %+v, want done %v\n%s", b, i, got.Status, got.Error, want[i], ops[i])
			}
		}
	}
	if refused == 0 || refused == poorBatches*poorBatch {
		t.Errorf("%d were refused: this proves nothing", refused)
	}
	k := &bank{b: t, addr: r.Addr(), token: r.adminToken(), accounts: poorAccounts}
	k.balanced(func(i int) int64 { return int64(have[i]) })
	r.halt()
	verified(t, cfg)
}

// batch has operations done, and gives their results.
func (r *rig) batch(key, mode string, ops []string) []wire.BatchResult {
	r.t.Helper()
	got := r.v1("POST", "/v1/batch", key, `{"mode":"`+mode+`","ops":[`+strings.Join(ops, ",")+`]}`)
	var out wire.BatchAnswer
	if got.status != http.StatusOK && got.status != http.StatusMultiStatus || json.Unmarshal([]byte(got.body), &out) != nil || len(out.Results) != len(ops) {
		r.t.Fatalf("batch %s: %d %.300s", key, got.status, got.body)
	}
	return out.Results
}
