package engines

import (
	"math/big"
	"math/rand/v2"
	"testing"
)

// Products and quotients agree with math/big for numbers of all lengths.
func TestWideIsBigs(t *testing.T) {
	draws := 300_000
	if testing.Short() {
		draws = 20_000
	}
	dice := rand.New(rand.NewPCG(7, 11))
	some := func() Amount { // of any length, with runs of equal bits
		hi, lo := dice.Uint64()>>dice.IntN(65), dice.Uint64()>>dice.IntN(65)
		if dice.IntN(3) == 0 {
			hi = 0
		}
		if dice.IntN(4) == 0 {
			hi, lo = ^hi, ^lo
		}
		return AmountOf(hi, lo)
	}
	word := func(z *big.Int, a Amount) *big.Int {
		hi, lo := a.Parts()
		return z.Or(z.Lsh(z.SetUint64(hi), 64), new(big.Int).SetUint64(lo))
	}
	var a, b, d, q, r big.Int
	for range draws {
		x, y, z := some(), some(), some()
		if z.IsZero() {
			continue
		}
		gotQ, gotR, ok := Product(x, y).Div(z)
		q.QuoRem(q.Mul(word(&a, x), word(&b, y)), word(&d, z), &r)
		if ok != (q.BitLen() <= 128) || ok && (word(&a, gotQ).Cmp(&q) != 0 || word(&b, gotR).Cmp(&r) != 0) {
			t.Fatalf("%s·%s/%s = %s rest %s, %v, want %s rest %s", x, y, z, gotQ, gotR, ok, &q, &r)
		}
	}
}
