package engines

import "math/bits"

// Wide is a number of 256 bits, such as the product of two amounts. The least significant limb
// comes first.
type Wide [4]uint64

// Product returns a·b.
func Product(a, b Amount) (w Wide) {
	ah, al := a.Parts()
	bh, bl := b.Parts()
	if ah|bh == 0 {
		w[1], w[0] = bits.Mul64(al, bl)
		return w
	}
	var c uint64
	w[1], w[0] = bits.Mul64(al, bl)
	w[3], w[2] = bits.Mul64(ah, bh)
	for _, cross := range [2][2]uint64{{ah, bl}, {al, bh}} {
		h, l := bits.Mul64(cross[0], cross[1])
		w[1], c = bits.Add64(w[1], l, 0)
		w[2], c = bits.Add64(w[2], h, c)
		w[3] += c
	}
	return w
}

// Less reports whether w is less than o.
func (w Wide) Less(o Wide) bool {
	for i := 3; i > 0; i-- {
		if w[i] != o[i] {
			return w[i] < o[i]
		}
	}
	return w[0] < o[0]
}

// Div returns the quotient and the remainder of w divided by d, which must not be 0. ok is false if
// the quotient has more than 128 bits.
func (w Wide) Div(d Amount) (q, r Amount, ok bool) {
	dh, dl := d.Parts()
	if dh == 0 {
		var limbs [4]uint64
		var rest uint64
		for i := 3; i >= 0; i-- {
			if rest|w[i] != 0 {
				limbs[i], rest = bits.Div64(rest, w[i], dl)
			}
		}
		return AmountOf(limbs[1], limbs[0]), AmountOf(0, rest), limbs[3]|limbs[2] == 0
	}
	if !w.high().Less(d) {
		return q, r, false
	}
	// Knuth's algorithm D: two digits of the quotient, the divisor shifted until its top bit is
	// set.
	s := uint(bits.LeadingZeros64(dh))
	dh, dl = dh<<s|dl>>1>>(63-s), dl<<s
	n := Wide{w[0] << s, w[1]<<s | w[0]>>1>>(63-s), w[2]<<s | w[1]>>1>>(63-s), w[3]<<s | w[2]>>1>>(63-s)}
	qh, r2, r1 := digit(n[3], n[2], n[1], dh, dl)
	ql, r2, r1 := digit(r2, r1, n[0], dh, dl)
	return AmountOf(qh, ql), AmountOf(r2>>s, r1>>s|r2<<1<<(63-s)), true
}

// high returns the upper 128 bits.
func (w Wide) high() Amount { return AmountOf(w[3], w[2]) }

// digit divides the three limbs a, b, c by dh·2^64+dl, which has its top bit set and is greater
// than a·2^64+b. It returns one digit and the remainder.
func digit(a, b, c, dh, dl uint64) (q, rh, rl uint64) {
	var rest, over uint64
	if a >= dh {
		q = ^uint64(0) // the digit is this or less; rest = a·2^64 + b - q·dh
		rest, over = bits.Add64(b, dh, 0)
	} else {
		q, rest = bits.Div64(a, b, dh)
	}
	for over == 0 {
		h, l := bits.Mul64(q, dl)
		if h < rest || h == rest && l <= c {
			break
		}
		q--
		rest, over = bits.Add64(rest, dh, 0)
	}
	h, l := bits.Mul64(q, dl)
	rl, borrow := bits.Sub64(c, l, 0)
	rh, _ = bits.Sub64(rest, h, borrow)
	return q, rh, rl
}
