package compare

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

func TestDirectionOf(t *testing.T) {
	for key, want := range map[string]Better{
		"accuracy": Higher, "val_accuracy": Higher, "test.f1": Higher, "loss": Lower, "val/loss": Lower, "RMSE": Lower, "error_rate": Lower,
		"n": "", "epoch": "", "accuracy_loss": "", "glossary": "", "": "", "scores[0].auc": Higher,
	} {
		if got := DirectionOf(key); got != want {
			t.Errorf("DirectionOf(%q) = %q, want %q", key, got, want)
		}
	}
}

func tableOf(values ...string) *Table {
	t := &Table{}
	for i, v := range values {
		r := &TableRow{Side: string(rune('a' + i)), found: map[metric]json.RawMessage{}, Params: map[string]json.RawMessage{"same": []byte("1")}}
		if v != "" {
			r.found[metric{"fit", "", "", "loss"}] = json.RawMessage(v)
			r.Params["p"] = json.RawMessage(v)
		}
		t.Rows = append(t.Rows, r)
	}
	t.nameMetrics()
	t.nameParams(false)
	return t
}

func TestBest(t *testing.T) {
	for values, want := range map[string]string{
		"3 1 2": "1", "1 1 2": "0 1", "1 1 1": "", "1": "", "x 1 2": "1", `"a" 2 1`: "2", "- 5 4": "2", "1.0 1 2": "0 1", "null 3": "", `"NaN" 2 1`: "2", `"NaN" "NaN" 1`: "", `"Infinity" 2`: "1", `"-Infinity" 2`: "0",
	} {
		list := strings.Fields(strings.ReplaceAll(strings.ReplaceAll(values, "x", `"x"`), "- ", "null "))
		table := tableOf(list...)
		c := table.Metrics[0]
		c.Better = Lower
		table.best(c)
		var got []string
		for _, i := range c.Best {
			got = append(got, string(rune('0'+i)))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("best of %s: %v, want %q", values, got, want)
		}
	}
}

func TestSort(t *testing.T) {
	for column, want := range map[string]string{"loss": "c a b d", "-loss": "b a c d", "p": "c a b d", "side": "a b c d", "-side": "d c b a", "": "a b c d"} {
		table := tableOf("2", "10", "1.5", "")
		if err := table.sort(column); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range table.Rows {
			got = append(got, r.Side)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("sort by %q: %v, want %s", column, got, want)
		}
	}
	if err := tableOf("1").sort("nope"); err == nil || !strings.Contains(err.Error(), "side, item, time, loss") {
		t.Errorf("an unknown column: %v", err)
	}
}

func TestColumns(t *testing.T) {
	table := tableOf("2", "3")
	if !slices.Equal(table.Params, []string{"p"}) {
		t.Errorf("parameters %v, want p alone", table.Params)
	}
	two := &Table{Rows: []*TableRow{{found: map[metric]json.RawMessage{
		{"fit", "", "", "loss"}: nil, {"eval", "a", "", "loss"}: nil, {"eval", "b", "", "loss"}: nil, {"eval", "b", "", ""}: nil,
		{"eval", "c", "live/m.json", "loss"}: nil,
	}}}}
	two.nameMetrics()
	if got, want := two.names(), []string{"eval.a.loss", "eval.b", "eval.b.loss", "eval.c.live/m.json:loss", "fit.loss"}; !slices.Equal(got, want) {
		t.Errorf("columns %v, want %v", got, want)
	}
}

func TestItems(t *testing.T) {
	params := map[string]json.RawMessage{}
	itemParams(params, "depth=4,rate=0.5,name=a b,on=true")
	want := map[string]string{"depth": "4", "rate": "0.5", "name": `"a b"`, "on": "true"}
	for name, v := range want {
		if string(params[name]) != v {
			t.Errorf("%s is %s, want %s", name, params[name], v)
		}
	}
	for task, want := range map[string][2]string{"fit": {"fit", ""}, "fit[4]": {"fit", "4"}, "fit[a=1,b=2]": {"fit", "a=1,b=2"}} {
		if base, label := splitLabel(task); base != want[0] || label != want[1] {
			t.Errorf("%s: %q %q", task, base, label)
		}
	}
}
