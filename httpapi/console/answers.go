package console

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"ronbox/httpapi/wire/node"
	"ronbox/httpapi/wire/wallet"
)

// answer answers one of the four questions of the first screen.
type answer struct {
	light
	Question string
	Text     string
	Link     string
	More     []sentence
}

// sentence is a further sentence of an answer. A time stands behind it.
type sentence struct {
	Text string
	At   time.Time
}

// unknown is the state of what a session may not read, or of what the node does not know.
var unknown = light{"warn", "not known"}

// answers returns the answers to the four questions of the first screen.
func (d *overviewData) answers(v *view) [4]answer {
	return [...]answer{d.healthy(), d.moving(v), d.backedUp(v), d.inSync(v)}
}

// healthy answers whether the node is ready and sound.
func (d *overviewData) healthy() answer {
	a := answer{Question: "Healthy?", Link: prefix + "operations", light: light{"good", "yes"}}
	st, warn, bad := d.Status.V, 0, 0
	if d.Attention != nil {
		for _, c := range d.Attention.Rows {
			if c.Class == "bad" {
				bad++
			} else {
				warn++
			}
		}
	}
	switch {
	case !d.Status.OK():
		a.light, a.Text = unknown, d.Status.Fault
	case !st.Ready:
		a.light, a.Text = light{"bad", "no"}, "Not ready: "+strings.Join(st.Missing, ", ")
	case bad > 0:
		a.light, a.Text = light{"bad", "no"}, fmt.Sprintf("%s failed", plural(bad, "check"))
	case !st.WriteReady:
		a.light, a.Text = light{"bad", "no"}, "It takes no writes: "+strings.Join(st.Missing, ", ")
	case warn > 0:
		a.light, a.Text = light{"warn", "look"}, fmt.Sprintf("Ready; %s warned", plural(warn, "check"))
	case !d.Checks.OK():
		a.light, a.Text = light{"good", "ready"}, "Ready; what its checks found is not known"
	default:
		a.Text = fmt.Sprintf("Ready, and %s found nothing", plural(len(d.Checks.V), "check"))
	}
	return a
}

// capital returns a text with a capital letter at its beginning.
func capital(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

// plural returns a number with its noun.
func plural(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return thousands(n) + " " + noun
}

// moving answers whether payments are made.
func (d *overviewData) moving(v *view) answer {
	a := answer{Question: "Money moving?", Link: prefix + "wallet#payments", light: unknown}
	if d.Off["wallet"] {
		a.light, a.Text = light{"warn", "off"}, "The wallet is off"
		return a
	}
	minute, hour := paid(d.series.V)
	a.Text = paidText(minute, hour, d.Status.V.UptimeSeconds, d.Status.OK())
	if !d.series.OK() {
		a.Text = d.series.Fault
	}
	ready, known := d.Status.V.Services["wallet"]
	switch {
	case known && !ready.WriteReady:
		a.light = light{"bad", "stopped"}
	case minute > 0:
		a.light = light{"good", "yes"}
	case known:
		a.light = light{"good", "ready"}
	default:
		a.More = append(a.More, sentence{Text: "Whether it takes payments is not known. " + d.Status.Fault})
	}
	last := read(v.h.wallet.Payments(v.ctx, wallet.PaymentsQuery{Limit: 1}))
	for _, p := range paymentsIn(last.V) {
		at, _ := time.Parse(time.RFC3339Nano, p.TS)
		a.More = append(a.More, sentence{fmt.Sprintf("The last one: %s of %s %s", p.Op,
			d.Units.Amount(p.AmountMinor, p.Asset), p.Asset), at})
	}
	if text := refusedIn(d.series.V.Refusals); text != "" {
		a.More = append(a.More, sentence{Text: "Refused in the last hour: " + text})
	}
	return a
}

// paidText tells the payments of the last minute and hour. They are counted since the start.
func paidText(minute, hour int, uptime int64, known bool) string {
	switch {
	case known && uptime < 60:
		return plural(hour, "payment") + " since the start of the node"
	case known && uptime < 3600:
		return fmt.Sprintf("%s in the last minute, %s since the start of the node", plural(minute, "payment"),
			thousands(hour))
	}
	return fmt.Sprintf("%s in the last minute, %s in the last hour", plural(minute, "payment"), thousands(hour))
}

// paid returns the payments of the last minute and hour.
func paid(list node.SeriesList) (minute, hour int) {
	for _, s := range list.Series {
		if s.Name != "payments_per_s" {
			continue
		}
		sum, recent := 0.0, 0.0
		for i, value := range s.Values {
			if value == nil {
				continue
			}
			n := *value * float64(list.StepS)
			if sum += n; (len(s.Values)-i)*list.StepS <= 60 {
				recent += n
			}
		}
		return int(recent + 0.5), int(sum + 0.5)
	}
	return 0, 0
}

// mostReasons is the number of reasons that the first screen names.
const mostReasons = 4

// refusedIn names the most frequent reasons for which the wallet has refused.
func refusedIn(all []node.RefusalCount) string {
	var out []string
	for _, r := range all {
		if r.Service == "wallet" && len(out) < mostReasons {
			out = append(out, thousands(r.Count)+" "+r.Reason)
		}
	}
	return strings.Join(out, ", ")
}

// backedUp answers whether there is a copy of the file. The check of the node judges its age.
func (d *overviewData) backedUp(v *view) answer {
	a := answer{Question: "Backed up?", Link: prefix + "operations#snapshots", light: unknown}
	for _, c := range d.Checks.V {
		if c.Check == "backup" {
			a.light, a.Text = light{c.Class, "yes"}, capital(c.Text)
			if c.Class != "good" {
				a.Name = "look"
			}
		}
	}
	list := read(v.h.node.Snapshots(v.ctx))
	if !list.OK() {
		a.Text = list.Fault
		return a
	}
	var newest *node.SnapshotInfo
	for i := range list.V.Snapshots {
		if s := &list.V.Snapshots[i]; s.Verified && (newest == nil || s.CreatedAt.After(newest.CreatedAt)) {
			newest = s
		}
	}
	if newest == nil {
		a.More = append(a.More, sentence{Text: "There is no verified snapshot in " + list.V.Dir})
		if a.Class == "good" {
			a.light = light{"warn", "not yet"}
		}
		return a
	}
	where := list.V.Dir
	if file := d.Status.V.Store.File; file != "" && strings.HasPrefix(where+"/", filepath.Dir(file)+"/") {
		where += ", on the disk of the node itself"
	}
	a.More = append(a.More, sentence{"The last verified one is in " + where, newest.CreatedAt})
	return a
}
