package wallet

import (
	"math"
	"strings"
	"unicode/utf8"
)

// plain reads batches in the form in which programs write them: known members, each once, strings
// without escapes, whole numbers. It uses no reflection and has no faults of its own: it gives up
// on any other body, sound or not, which [readAny] then decodes.
type plain struct {
	text  string            // the body; what is kept of it is copied out
	at    int               // what is read of text, bytes
	names map[string]string // of accounts and assets, so that a batch holds each once
	room  strings.Builder   // holds the newest names
	nonce uint64            // of the op that is read
	lasts uint64            // its expires_in_s
}

// readPlain reads a batch. It returns false if it gave up.
func readPlain(body []byte) (b batch, ok bool) {
	p := plain{text: string(body)}
	ok = p.object(func(name string) bool {
		switch {
		case name == "mode" && b.Mode == "":
			text, ok := p.string()
			b.Mode = mode(strings.Clone(text))
			return ok && b.Mode.check() == nil
		case name == "ops" && b.Ops == nil:
			b.Ops, ok = p.orders()
			return ok
		}
		return false
	})
	ok = ok && p.peek() == 0 && p.at == len(body) && b.Mode != "" && len(b.Ops) > 0 && len(b.Ops) <= maxBatchOps
	return b, ok
}

// orders reads the operations of a batch.
func (p *plain) orders() (out orders, ok bool) {
	if !p.take('[') {
		return nil, false
	}
	out = make(orders, 0, min(1+strings.Count(p.text, `"op"`), maxBatchOps))
	p.names = make(map[string]string, 1+cap(out))
	one := newOrder()
	for clear := one; ; one = clear {
		if len(out) == maxBatchOps || !p.order(&one) {
			return nil, false
		}
		op, bad := one.validate(0)
		if bad != nil {
			return nil, false
		}
		if out = append(out, op); !p.take(',') {
			return out, p.take(']')
		}
	}
}

// order reads one operation.
func (p *plain) order(o *order) bool {
	return p.object(func(name string) (ok bool) {
		var text *string
		switch name {
		case "op":
			text = &o.Op
		case "from":
			text = &o.From
		case "to":
			text = &o.To
		case "asset":
			text = &o.Asset
		case "amount_minor":
			text = &o.Amount
		case "hold":
			text = &o.Hold
		case "memo":
			text = &o.Memo
		case "valid_until":
			text = &o.ValidUntil
		case "reference":
			text = &o.Reference
		case "nonce":
			ok = o.Nonce == nil
			o.Nonce = &p.nonce
			return ok && p.number(o.Nonce)
		case "expires_in_s":
			ok = o.ExpiresInS == nil
			o.ExpiresInS = &p.lasts
			return ok && p.number(o.ExpiresInS)
		default:
			return false
		}
		if *text != absent {
			return false
		}
		if *text, ok = p.string(); !ok {
			return false
		}
		switch text {
		case &o.From, &o.To, &o.Asset:
			*text = p.name(*text)
		case &o.Memo, &o.Reference:
			*text = strings.Clone(*text)
		}
		return true
	})
}

// nameRoom is the size of the memory that names share. The ledger may keep one of them, and all of
// it with that, for as long as it remembers the account.
const nameRoom = 128

// name returns a copy of s, the same one for each name of the batch.
func (p *plain) name(s string) string {
	known, ok := p.names[s]
	if ok {
		return known
	}
	if p.room.Cap()-p.room.Len() < len(s) {
		p.room = strings.Builder{}
		p.room.Grow(max(len(s), nameRoom))
	}
	at := p.room.Len()
	p.room.WriteString(s)
	known = p.room.String()[at:]
	p.names[known] = known
	return known
}

// object reads an object with at least one member. member reads the value of a member, and returns
// false if it gave up.
func (p *plain) object(member func(name string) bool) bool {
	if !p.take('{') {
		return false
	}
	for {
		name, ok := p.string()
		if !ok || !p.take(':') || !member(name) {
			return false
		}
		if !p.take(',') {
			return p.take('}')
		}
	}
}

// peek skips white space and returns the next byte, 0 at the end.
func (p *plain) peek() byte {
	for ; p.at < len(p.text); p.at++ {
		switch c := p.text[p.at]; c {
		case ' ', '\t', '\n', '\r':
		default:
			return c
		}
	}
	return 0
}

// take reads the byte c, after white space.
func (p *plain) take(c byte) bool {
	if p.peek() != c {
		return false
	}
	p.at++
	return true
}

// string reads a string without escapes. The result is a part of the body.
func (p *plain) string() (s string, ok bool) {
	if !p.take('"') {
		return "", false
	}
	rest, ascii := p.text[p.at:], true
	for i := range len(rest) {
		switch c := rest[i]; {
		case c == '"':
			p.at += i + 1
			return rest[:i], ascii || utf8.ValidString(rest[:i])
		case c == '\\', c < ' ':
			return "", false
		case c >= utf8.RuneSelf:
			ascii = false
		}
	}
	return "", false
}

// number reads a whole number without sign, fraction and exponent.
func (p *plain) number(to *uint64) bool {
	p.peek()
	rest, n := p.text[p.at:], uint64(0)
	for i := range len(rest) {
		digit := uint64(rest[i]) - '0'
		if digit > 9 {
			p.at += i
			*to = n
			return i > 0
		}
		if i > 0 && n == 0 || n > (math.MaxUint64-digit)/10 {
			return false
		}
		n = 10*n + digit
	}
	return false
}
