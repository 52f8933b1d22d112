package manifest_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"runtime"
	"strconv"
	"testing"
	"time"

	"e3/internal/format/manifest"
)

// largeYAML is a package of n tasks in layers, each reading two of the layer before, a source and the scripts.
func largeYAML(n int) []byte {
	var b bytes.Buffer
	b.WriteString("e3: 1\nname: large\nversion: 1.0.0\ninputs:\n  src: {glob: \"src/**/*.py\"}\n")
	for i := range n/5 + 1 {
		fmt.Fprintf(&b, "  source_%d: {file: data/part-%d.csv}\n", i, i)
	}
	b.WriteString("tasks:\n")
	for i := range n {
		fmt.Fprintf(&b, "  t%d:\n    in:\n      src: src\n      source: source_%d\n", i, i/5)
		if i >= 100 {
			fmt.Fprintf(&b, "      left: t%d\n      right: t%d.out\n", i-100, i-99)
		}
		fmt.Fprintf(&b, "    out: out/part-%d.csv\n    run: [python3, src/step.py, \"--in\", \"{source}\", \"--out\", \"{out}\"]\n", i)
		b.WriteString("    env: {OMP_NUM_THREADS: \"2\"}\n    timeout: 30m\n    resources: {cpu: 1, memory: 512MiB}\n")
	}
	return b.Bytes()
}

// largeJSON is the same package as JSON.
func largeJSON(n int) []byte {
	var b bytes.Buffer
	b.WriteString(`{"e3":1,"name":"large","version":"1.0.0","inputs":{"src":{"glob":"src/**/*.py"}`)
	for i := range n/5 + 1 {
		fmt.Fprintf(&b, ",\n\"source_%d\":{\"file\":\"data/part-%d.csv\"}", i, i)
	}
	b.WriteString("},\n\"tasks\":{")
	for i := range n {
		if i > 0 {
			b.WriteString(",\n")
		}
		in := map[string]string{"src": "src", "source": "source_" + strconv.Itoa(i/5)}
		if i >= 100 {
			in["left"], in["right"] = fmt.Sprintf("t%d", i-100), fmt.Sprintf("t%d.out", i-99)
		}
		text, _ := json.Marshal(in)
		fmt.Fprintf(&b, `"t%d":{"in":%s,"out":"out/part-%d.csv","run":["python3","src/step.py","--in","{source}","--out","{out}"],`, i, text, i)
		b.WriteString(`"env":{"OMP_NUM_THREADS":"2"},"timeout":"30m","resources":{"cpu":1,"memory":"512MiB"}}`)
	}
	b.WriteString("}}\n")
	return b.Bytes()
}

// BenchmarkParse reports the time, the greatest heap during parsing beyond the input itself, and the memory of the
// Definition.
func BenchmarkParse(b *testing.B) {
	for _, n := range []int{10_000, 100_000} {
		for _, format := range []struct {
			name string
			data []byte
		}{{"yaml", largeYAML(n)}, {"json", largeJSON(n)}} {
			b.Run(fmt.Sprintf("%s/%d", format.name, n), func(b *testing.B) {
				b.SetBytes(int64(len(format.data)))
				var peak, kept uint64
				for b.Loop() {
					before := heap(true)
					stop := make(chan chan uint64)
					go watchHeap(stop)
					d, err := manifest.Parse("large", format.data)
					reply := make(chan uint64)
					stop <- reply
					peak = max(peak, <-reply-before)
					if err != nil {
						b.Fatal(err)
					}
					kept = heap(true) - before
					runtime.KeepAlive(d)
				}
				b.ReportMetric(float64(peak)/1e6, "peak-MB")
				b.ReportMetric(float64(kept)/1e6, "kept-MB")
			})
		}
	}
}

func heap(collect bool) uint64 {
	if collect {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// watchHeap samples the heap until asked for the greatest value.
func watchHeap(stop chan chan uint64) {
	greatest := uint64(0)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			greatest = max(greatest, heap(false))
		case reply := <-stop:
			reply <- max(greatest, heap(false))
			return
		}
	}
}
