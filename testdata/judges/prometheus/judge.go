// Command judge has the types of Grafana decode the dashboard strictly, puts load on a node that a
// Prometheus scrapes, and evaluates each query of the dashboard: none may be without a value, except
// those of mayBeEmpty. On a node that nobody asks, a query may have no number, but it must have its
// series, except those of mayBeAbsent.
package main

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// mayBeEmpty lists the panels, or the rows of panels, without a value on this node, with the reason.
var mayBeEmpty = map[string]string{
	"Node/Failing readiness keys":  "it lists failing keys only",
	"Node/Expires in: certificate": "the node of the judge serves without TLS",
	"Cluster":                      "the node of the judge is no member of a cluster",
}

// mayBeAbsent lists the panels without series on a node that nobody asks, in addition: the series of
// a route, and those of the lookups of the index, begin with the first request.
var mayBeAbsent = map[string]string{
	"Registry/Requests by status":         "no request yet",
	"Wallet/Requests by status":           "no request yet",
	"Rewarder/Requests by status":         "no request yet",
	"Edge/Requests by status":             "no request yet",
	"Index/Requests by status":            "no request yet",
	"Registry/Refused requests by reason": "no request yet",
	"Registry/Latency":                    "no request yet",
	"Wallet/Refused requests by reason":   "no request yet",
	"Wallet/Latency":                      "no request yet",
	"Rewarder/Refused requests by reason": "no request yet",
	"Rewarder/Latency":                    "no request yet",
	"Edge/Refused requests by reason":     "no request yet",
	"Edge/Latency":                        "no request yet",
	"Index/Refused requests by reason":    "no request yet",
	"Index/Latency":                       "no request yet",
	"Index/Lookups":                       "no lookup yet",
	"Index/Lookups among peers":           "it has no peers",
	"Index/Breakers of peers":             "it has no peers",
	"Node/Refused tokens":                 "no token was refused yet",
}

type board struct {
	Panels []struct {
		Type, Title string
		Targets     []struct{ Expr, LegendFormat string }
	}
}

func main() {
	node := flag.String("node", "", "URL of the node")
	quiet := flag.String("quiet", "", "host and port of a node that is scraped too, but not asked")
	token := flag.String("token", "", "file of its token")
	prometheus := flag.String("prometheus", "", "URL of the Prometheus")
	file := flag.String("dashboard", "", "output of ronbox dashboard")
	seconds := flag.Int("seconds", 40, "time of the load")
	flag.Parse()
	secret, err := os.ReadFile(*token)
	must(err)
	raw, err := os.ReadFile(*file)
	must(err)
	must(decodes(raw))
	var d board
	must(json.Unmarshal(raw, &d))
	l := load{url: *node, token: strings.TrimSpace(string(secret)), until: time.Now().Add(time.Duration(*seconds) * time.Second)}
	var faults []string
	var running sync.WaitGroup
	running.Add(1)
	go func() {
		defer running.Done()
		l.run()
	}()
	time.Sleep(time.Until(l.until) - 5*time.Second) // the last queries see the load
	j := judge{prometheus: *prometheus, instance: strings.TrimPrefix(*node, "http://"), except: mayBeEmpty}
	faults = j.all(d)
	j.instance, j.quiet, j.except = *quiet, true, maps.Clone(mayBeEmpty)
	maps.Copy(j.except, mayBeAbsent)
	faults = append(faults, j.all(d)...)
	running.Wait()
	for status, n := range l.answers {
		fmt.Printf("%d answers of %d\n", n, status)
	}
	if len(faults) > 0 {
		fmt.Println(strings.Join(faults, "\n"))
		os.Exit(1)
	}
}

// decodes returns the members that are unknown to Grafana, missing or of another type.
func decodes(raw []byte) error {
	plugins.RegisterDefaultPlugins()
	var d dashboard.Dashboard
	if err := d.UnmarshalJSONStrict(raw); err != nil && err.Error() != "" { // without faults it is an empty list
		return err
	}
	return d.Validate()
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// load sends requests of all kinds until the time is over.
type load struct {
	url, token string
	until      time.Time
	mu         sync.Mutex
	answers    map[int]int
}

func (l *load) run() {
	l.answers = map[int]int{}
	var all sync.WaitGroup
	for i := range 8 {
		all.Add(1)
		go func() {
			defer all.Done()
			for n := 0; time.Now().Before(l.until); n++ {
				l.round(i, n)
			}
		}()
	}
	all.Wait()
}

// round sends one request of each kind: some succeed, some are refused.
func (l *load) round(i, n int) {
	key := fmt.Sprintf("judge-%d-%d", i, n)
	pay := `{"from":"alice","to":"bob","asset":"ron","amount_minor":"1"}`
	l.send(http.MethodPost, "/v1/transfer", pay, "Idempotency-Key", key)
	switch n % 20 {
	case 0:
		l.send(http.MethodPost, "/v1/transfer", pay, "Idempotency-Key", key)
		l.send(http.MethodPost, "/v1/transfer", strings.Replace(pay, `"1"`, `"999999999"`, 1), "Idempotency-Key", key+"-poor")
	case 1:
		l.send(http.MethodGet, "/v1/balance?account=alice&asset=ron", "")
		l.send(http.MethodGet, "/v1/balance?account=alice&asset=none", "")
	case 2:
		l.send(http.MethodGet, "/registry/head", "")
		l.send(http.MethodGet, "/registry/999999", "")
	case 3:
		l.send(http.MethodGet, "/edge/assets/stamen_toner_z3.pmtiles", "", "Range", "bytes=0-1023")
		l.send(http.MethodGet, "/edge/tiles/stamen_toner_z3/4/0/0.png", "")
		l.send(http.MethodGet, "/edge/assets/x.example/y", "")
	case 4:
		l.send(http.MethodGet, "/resolve/name:docs.example", "")
		l.send(http.MethodGet, "/resolve/name:far.example", "")
		l.send(http.MethodGet, fmt.Sprintf("/resolve/name:none%d.example", n%400), "")
	case 5:
		l.send(http.MethodGet, "/rewarder/epochs", "")
		l.send(http.MethodGet, "/rewarder/epochs/none", "")
	case 6:
		l.send(http.MethodGet, "/v1/ledger/head", "")
		l.send(http.MethodGet, "/v1/balance?account=alice&asset=ron", "", "Authorization", "Bearer none")
	}
}

func (l *load) send(method, path, body string, headers ...string) {
	r, err := http.NewRequest(method, l.url+path, strings.NewReader(body))
	must(err)
	r.Header.Set("Authorization", "Bearer "+l.token)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	status := 0
	if resp, err := http.DefaultClient.Do(r); err == nil {
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		status = resp.StatusCode
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answers[status]++
}

// judge evaluates the queries of a dashboard for one node.
type judge struct {
	prometheus, instance string
	quiet                bool // values may be NaN
	except               map[string]string
}

// all returns the faults of the queries: those that fail, have no value, or lack a label of their
// legend.
func (j judge) all(d board) (faults []string) {
	row, panels, queries, excepted := "", 0, 0, 0
	for _, p := range d.Panels {
		if p.Type == "row" {
			row = p.Title
			continue
		}
		panels++
		for _, t := range p.Targets {
			queries++
			name := row + "/" + p.Title
			why := cmp.Or(j.except[name], j.except[row])
			if i := strings.LastIndexByte(t.LegendFormat, ' '); why == "" && i >= 0 {
				why = j.except[name+": "+t.LegendFormat[i+1:]]
			}
			switch fault := j.evaluate(t.Expr, t.LegendFormat); {
			case fault == "" && why != "" && !j.quiet:
				faults = append(faults, fmt.Sprintf("%s has values, but is listed as empty: %s", name, why))
			case fault == "":
			case why != "":
				excepted++
				fmt.Printf("  %s (%s): %s\n", name, t.LegendFormat, why)
			default:
				faults = append(faults, fmt.Sprintf("%s: %s\n  %s", name, fault, t.Expr))
			}
		}
	}
	fmt.Printf("%s: %d panels, %d queries, %d of them without values for a reason, %d faults\n", j.instance, panels,
		queries, excepted, len(faults))
	return faults
}

var named = regexp.MustCompile(`\{\{(\w+)\}\}`)

// evaluate returns the fault of a query, or "".
func (j judge) evaluate(expr, legend string) string {
	// The interval covers the whole load.
	expr = strings.NewReplacer("$__rate_interval", "1m", "$job", ".*", "$instance", j.instance).Replace(expr)
	resp, err := http.Get(j.prometheus + "/api/v1/query?query=" + url.QueryEscape(expr))
	must(err)
	defer resp.Body.Close()
	var answer struct {
		Status, Error string
		Data          struct {
			Result []struct {
				Metric map[string]string
				Value  [2]any
			}
		}
	}
	must(json.NewDecoder(resp.Body).Decode(&answer))
	if answer.Status != "success" {
		return answer.Error
	}
	if len(answer.Data.Result) == 0 {
		return "it is empty"
	}
	known := j.quiet
	for _, r := range answer.Data.Result {
		text, _ := r.Value[1].(string)
		v, err := strconv.ParseFloat(text, 64)
		known = known || err == nil && !math.IsNaN(v)
		for _, m := range named.FindAllStringSubmatch(legend, -1) {
			if _, has := r.Metric[m[1]]; !has {
				return "its series have no label " + m[1]
			}
		}
	}
	if !known {
		return "all its values are NaN"
	}
	return ""
}
