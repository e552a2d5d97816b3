package member

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"ronbox/appliance/peer"
	"ronbox/store"
	"ronbox/store/storetest"
)

func sum(n int) hash { return sha256.Sum256(fmt.Append(nil, n)) }

func TestTokenForm(t *testing.T) {
	want := Token{Secret: sum(1), Pin: peer.Pin(sum(2))}
	text := want.String()
	if got, err := ParseToken(text); err != nil || got != want || len(text) != 87 {
		t.Errorf("%+v, err = %v, %d characters", got, err, len(text))
	}
	for _, bad := range []string{"", text[1:], text + "A", strings.Repeat("A", 87), text[:86] + "=", "é" + text} {
		if _, err := ParseToken(bad); !errors.Is(err, ErrTokenForm) {
			t.Errorf("%q: err = %v, want ErrTokenForm", bad, err)
		}
	}
}

func TestMintBounds(t *testing.T) {
	tx := storetest.NewTx(t, Buckets()...)
	// the stamps of tx grow by a nanosecond
	for n := range maxTokens {
		if _, err := storetest.Do(tx, mint{Hash: sum(n), TTL: int64(time.Hour)}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := storetest.Do(tx, mint{Hash: sum(maxTokens), TTL: 1}); !errors.Is(err, ErrManyTokens) {
		t.Errorf("err = %v, want ErrManyTokens", err)
	}
	tx = storetest.NewTx(t, Buckets()...)
	for n := range 3 * maxTokens { // each has expired when the next one comes
		if _, err := storetest.Do(tx, mint{Hash: sum(n), TTL: 1}); err != nil {
			t.Fatal(err)
		}
	}
	rows := 0
	for range tokens.All(tx.Reader()) {
		rows++
	}
	if rows != 1 {
		t.Errorf("%d rows are left, want 1", rows)
	}
	for _, ttl := range []time.Duration{time.Second, MaxTTL + 1, -time.Hour} {
		if _, _, err := Mint(t.Context(), nil, peer.Pin{}, MintSpec{TTL: ttl}); err == nil {
			t.Errorf("Mint accepts a TTL of %v", ttl)
		}
	}
}

func TestRedeem(t *testing.T) {
	tx := storetest.NewTx(t, Buckets()...)
	do := func(c store.Command[string], want string, wantErr error) {
		t.Helper()
		if got, err := storetest.Do(tx, c); got != want || !errors.Is(err, wantErr) {
			t.Errorf("%+v: %q, err = %v, want %q, %v", c, got, err, want, wantErr)
		}
	}
	for n, ttl := range []time.Duration{time.Hour, 1} {
		if _, err := storetest.Do(tx, mint{Hash: sum(n), TTL: int64(ttl)}); err != nil {
			t.Fatal(err)
		}
	}
	do(redeem{Hash: sum(9), Key: sum(1), Server: "a"}, "", ErrToken) // unknown
	do(redeem{Hash: sum(1), Key: sum(1), Server: "a"}, "", ErrToken) // expired
	do(redeem{Hash: sum(0), Key: sum(1), Server: "a"}, "a", nil)
	do(redeem{Hash: sum(0), Key: sum(1), Server: "b"}, "a", nil) // again
	do(redeem{Hash: sum(0), Key: sum(2), Server: "b"}, "", ErrToken)
	if _, err := storetest.Do(tx, admitted{Server: "a"}); err != nil {
		t.Fatal(err)
	}
	do(redeem{Hash: sum(0), Key: sum(1), Server: "b"}, "", ErrToken) // used up
	do(rejoin{Old: "old", Key: sum(3), Server: "c"}, "", ErrToken)   // not a member
	do(rejoin{Old: "old", Member: true, Key: sum(3), Server: "c"}, "c", nil)
	do(rejoin{Old: "old", Key: sum(3), Server: "d"}, "c", nil) // removed by the first one
	do(rejoin{Old: "old", Key: sum(4), Server: "d"}, "", ErrToken)
	do(rejoin{Old: "other", Key: sum(3), Server: "d"}, "", ErrToken)
	for n := range maxIssues - 1 {
		s := fmt.Sprint("s", n)
		do(rejoin{Old: s, Member: true, Key: sum(n), Server: s}, s, nil)
	}
	do(rejoin{Old: "more", Member: true, Key: sum(3), Server: "d"}, "", ErrManyTokens)
}
