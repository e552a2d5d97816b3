package server

import (
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"ronbox/cmd/ronbox/server/config"
	"ronbox/httpapi/client"
	walletapi "ronbox/httpapi/wire/wallet"
)

// visits records the nodes that get requests with a token. Only one goroutine may use it.
type visits struct {
	t     *testing.T
	hosts []string
}

func (v *visits) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Header.Get("Authorization") == "" {
		v.t.Error("a request without the token")
	}
	v.hosts = append(v.hosts, r.URL.Host)
	return http.DefaultTransport.RoundTrip(r)
}

// A client that lists two members of a cluster goes to the one that leads, and goes on paying at the
// other when that stops. One that lists a follower only sends its token nowhere else.
func TestClientGoesOnPaying(t *testing.T) {
	t.Parallel()
	a := leadsAlone(t)
	token, err := os.ReadFile(a.cfg.Path(config.TokenName))
	must(t, err)
	b, c := join(t, a), join(t, a)
	a.await("three healthy voters", func() bool {
		s, err := a.status()
		return err == nil && s.VotersHealthy == 3
	})
	b.await("the URL of the leader", func() bool {
		return b.part().Answering().LeaderURL() == a.server.URL()
	})
	open := func(urls ...string) (*visits, walletapi.Client) {
		v := &visits{t: t}
		one, err := client.New(client.Options{URLs: urls, Token: strings.TrimSpace(string(token)), Transport: v})
		must(t, err)
		return v, walletapi.NewClient(one)
	}
	paid := 0
	pay := func(w walletapi.Client) {
		t.Helper()
		paid++
		key := "payment-" + strconv.Itoa(paid)
		b.await(key, func() bool {
			_, err := w.Transfer(t.Context(), key, walletapi.Transfer{
				From: devAccount, To: "bob", Asset: "ron", AmountMinor: "1",
			})
			if err != nil && !client.Retryable(err) {
				t.Fatal(err)
			}
			return err == nil
		})
	}
	seen, both := open("http://"+b.Addr(), "http://"+a.Addr())
	other, one := open("http://" + b.Addr())
	for range 3 {
		pay(both)
		pay(one)
	}
	if want := []string{b.Addr(), a.Addr(), a.Addr()}; !slices.Equal(seen.hosts, want) {
		t.Errorf("the leader is listed: asked %v, want %v", seen.hosts, want)
	}
	if want := slices.Repeat([]string{b.Addr()}, 3); !slices.Equal(other.hosts, want) {
		t.Errorf("the leader is not listed: asked %v, want %v", other.hosts, want)
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections() // or the stop lingers for them
	a.halt()
	for range 3 {
		pay(both)
	}
	if last := seen.hosts[len(seen.hosts)-1]; last != b.Addr() {
		t.Errorf("after the stop of %s the last payment went to %s", a.Addr(), last)
	}
	got, err := both.Balance(t.Context(), "bob", "ron", 0)
	must(t, err)
	if got.AmountMinor != strconv.Itoa(paid) {
		t.Errorf("bob has %s after %d payments", got.AmountMinor, paid)
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	for _, l := range []*lives{b, c} {
		l.stop()
	}
	for _, l := range []*lives{b, c} {
		l.halt()
	}
}
