package console

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"ronbox/appliance/b3"
	"ronbox/httpapi/wire/rewarder"
)

// epochNode answers as a node with n epochs, accepted in the order of their numbers.
func epochNode(n int) http.Handler {
	var all []rewarder.Run
	for i := 1; i <= n; i++ { // a time without a fraction is not before one with a fraction as text
		at := noon.Add(time.Duration(i) * time.Second / 2).Format(time.RFC3339Nano)
		all = append(all, rewarder.Run{Epoch: strconv.Itoa(i), State: "settled", PaidMinor: "7", AcceptedAt: at})
	}
	slices.SortFunc(all, func(a, b rewarder.Run) int { return strings.Compare(a.Epoch, b.Epoch) })
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path != "/rewarder/epochs" {
			w.WriteHeader(http.StatusTeapot)
			return
		}
		limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
		from := 0
		if after := r.URL.Query().Get("after"); after != "" {
			from = 1 + slices.IndexFunc(all, func(one rewarder.Run) bool { return one.Epoch == after })
		}
		page := rewarder.EpochPage{Epochs: all[from:min(len(all), from+limit)]}
		if from+limit < len(all) {
			page.Next = page.Epochs[limit-1].Epoch
		}
		_ = json.MarshalWrite(w, page)
	})
}

// The newest epoch is the one that was accepted last, however many there are and whatever their ids
// are. What a page cannot count it does not claim.
func TestNewestEpoch(t *testing.T) {
	s := &session{rights: rights{who: "uid:1000", uid: 1000}, form: "FORM"}
	for _, tt := range []struct {
		n      int
		figure string
		newest string // "": none is named
	}{
		{1, "1 epoch<", "1: settled"}, {12, "12 epochs<", "12: settled"}, {maxRows, "50 epochs<", "50: settled"},
		{maxRows + 1, "50+ epochs<", ""},
	} {
		h := newGolden(t, epochNode(tt.n))
		text := string(h.page(t, s, "/console/"))
		if !strings.Contains(text, ">"+tt.figure) || strings.Contains(text, ": settled, 7 minor units paid") != (tt.newest != "") ||
			!strings.Contains(text, tt.newest) {
			at := max(0, strings.Index(text, "/console/rewards\">Rewards</a></h2>"))
			t.Errorf("%d epochs: want %q and %q: %.300s", tt.n, tt.figure, tt.newest, text[at:])
		}
		if tt.newest == "" {
			continue
		}
		text = string(h.page(t, s, "/console/rewards"))
		if want := fmt.Sprintf("Epoch %d</h2>", tt.n); !strings.Contains(text, want) {
			t.Errorf("%d epochs: the page of rewards does not show %q", tt.n, want)
		}
	}
}

// The page of rewards asks for one run of each policy, however many runs it lists.
func TestAssetsOfRuns(t *testing.T) {
	var page rewarder.EpochPage
	for i := range maxRows {
		policy := b3.Sum([]byte{byte(i % 3)})
		if i == maxRows-1 {
			policy = b3.Sum([]byte("not computed yet"))
		}
		run := rewarder.Run{Epoch: strconv.Itoa(i), State: "settled", PaidMinor: "7", PolicyHash: policy}
		if i != maxRows-1 {
			run.Commitment = b3.Sum([]byte("commitment"))
		}
		page.Epochs = append(page.Epochs, run)
	}
	asked := 0
	h := newGolden(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		name, one := strings.CutPrefix(r.URL.Path, "/rewarder/epochs/")
		switch i, err := strconv.Atoi(name); {
		case r.URL.Path == "/rewarder/epochs":
			_ = json.MarshalWrite(w, page)
		case one && err == nil:
			asked++
			run := page.Epochs[i]
			run.Manifest = []byte(fmt.Sprintf(`{"asset":"coin%d"}`, i%3))
			_ = json.MarshalWrite(w, run)
		default:
			w.WriteHeader(http.StatusTeapot)
		}
	}))
	s := &session{rights: rights{who: "uid:1000", uid: 1000}, form: "FORM"}
	text := string(h.page(t, s, "/console/rewards?epoch=4"))
	for i, want := range []int{17, 16, 16} {
		if got := strings.Count(text, fmt.Sprintf(`<td class="n">7 minor units coin%d</td>`, i)); got != want {
			t.Errorf("%d runs pay coin%d, want %d", got, i, want)
		}
	}
	if asked != 3 {
		t.Errorf("%d runs were asked for, want 3", asked)
	}
}
