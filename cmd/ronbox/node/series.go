package node

import (
	"context"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"ronbox/cmd/ronbox/cli"
	nodeapi "ronbox/httpapi/wire/node"
)

func (a app) seriesCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "series [NAME...]",
		Short: "Show the last hour of the running node's figures",
		Long: `Show the last hour of the running node: payments, requests, refusals, errors, commits,
file size, free disk space, memory, goroutines and edge hits. The node keeps a value
every 5 s in memory, so a restart begins a new hour. NAME selects series.

The table has the newest value of each series, the least, the mean and the greatest
value, and a chart of the hour that ends now. --json has every value.`,
		Example: `  ronbox --data-dir data series
  ronbox series commit_p99_ms file_bytes
  ronbox series --json | jq '.series[] | select(.name == "payments_per_s").values'`,
		Args: cobra.ArbitraryArgs,
	}
	cmd.RunE = a.online(func(ctx context.Context, c nodeapi.Client, names []string) error {
		list, err := c.Series(ctx)
		if err != nil {
			return err
		}
		if len(names) > 0 {
			list.Refusals = nil // they belong to no series
		}
		if list.Series, err = selectSeries(list.Series, names); err != nil {
			return err
		}
		return a.Show(list, func(t cli.Table) { seriesTable(t, list) })
	})
	return cmd
}

// selectSeries returns the named series, or all if no name is given.
func selectSeries(all []nodeapi.Series, names []string) ([]nodeapi.Series, error) {
	if len(names) == 0 {
		return all, nil
	}
	var out []nodeapi.Series
	for _, name := range names {
		at := slices.IndexFunc(all, func(s nodeapi.Series) bool { return s.Name == name })
		if at < 0 {
			known := make([]string, len(all))
			for i, s := range all {
				known[i] = s.Name
			}
			return nil, cli.Usage("%q is no series: want %s", name, strings.Join(known, ", "))
		}
		out = append(out, all[at])
	}
	return out, nil
}

func seriesTable(t cli.Table, l nodeapi.SeriesList) {
	t.Row("SERIES", "NOW", "LEAST", "MEAN", "MOST", "LAST HOUR")
	for _, s := range l.Series {
		low, mean, high := summary(s.Values)
		var now *float64
		if len(s.Values) > 0 {
			now = s.Values[len(s.Values)-1]
		}
		t.Row(s.Name, figure(s.Unit, now), figure(s.Unit, low), figure(s.Unit, mean), figure(s.Unit, high),
			chart(s.Values, l.StepS))
	}
}

// summary returns the least, the mean and the greatest of the known values, or nil if there are
// none.
func summary(values []*float64) (low, mean, high *float64) {
	var sum float64
	known := 0
	for _, v := range values {
		if v == nil {
			continue
		}
		if low == nil || *v < *low {
			low = v
		}
		if high == nil || *v > *high {
			high = v
		}
		sum += *v
		known++
	}
	if known > 0 {
		mean = new(sum / float64(known))
	}
	return low, mean, high
}

// figure formats a value with its unit.
func figure(unit string, v *float64) string {
	switch {
	case v == nil:
		return "-"
	case unit == "bytes":
		return cli.Bytes(int64(*v))
	case unit == "ms":
		return strconv.FormatFloat(*v, 'f', 2, 64) + " ms"
	case unit == "1/s":
		return strconv.FormatFloat(*v, 'f', 1, 64) + "/s"
	}
	return strconv.FormatFloat(*v, 'f', 0, 64)
}

const chartWidth = 30 // columns, of two minutes each

// chart draws the greatest value of each column between 0 and the greatest value of the series. The
// last column ends with the newest value; a column without values is a space.
func chart(values []*float64, step int) string {
	const levels = "▁▂▃▄▅▆▇█"
	each := max(1, int(time.Hour/time.Second)/max(step, 1)/chartWidth)
	_, _, high := summary(values)
	out := make([]rune, 0, chartWidth)
	for column := range chartWidth {
		end := len(values) - (chartWidth-1-column)*each
		_, _, most := summary(values[max(0, min(end-each, len(values))):max(0, end)])
		switch marks := []rune(levels); {
		case most == nil:
			out = append(out, ' ')
		case *high <= 0:
			out = append(out, marks[0])
		default:
			at := int(math.Ceil(*most/(*high)*float64(len(marks)))) - 1
			out = append(out, marks[max(0, at)])
		}
	}
	return strings.TrimRight(string(out), " ")
}
