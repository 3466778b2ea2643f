package main

import (
	"strconv"
	"testing"
	"time"

	"runtime"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParse(t *testing.T) {
	t.Parallel()
	full, ok, err := parse([]string{"compare"}, nil)
	require.NoError(t, err)
	assert.True(t, ok)
	assert.Equal(t, config{
		subjects: subjectNames(), workloads: workloadNames(), procs: processors(runtime.NumCPU()), count: 6,
		time: 300 * time.Millisecond, limit: 30 * time.Second, output: "compare.txt", command: "go -C benchmarks run ./cmd/compare",
	}, full)

	quick, ok, err := parse([]string{"compare", "--quick", "-o", "-"}, nil)
	require.NoError(t, err)
	assert.True(t, ok)
	assert.Equal(t, config{
		quick: true, subjects: subjectNames(), workloads: workloadNames(), procs: processors(runtime.NumCPU()), count: 1,
		time: 100 * time.Millisecond, limit: 10 * time.Second, output: "-", command: "go -C benchmarks run ./cmd/compare -quick",
	}, quick)

	some, ok, err := parse([]string{"compare", "-quick", "-impl", "wheel, STD,wheel", "-workload=gc", "-pending", "5,1k", "-procs", "1",
		"-count", "3", "-time", "1s", "-limit", "1m", "-o", "x", "-list"}, nil)
	require.NoError(t, err)
	assert.True(t, ok)
	assert.Equal(t, config{
		quick: true, list: true, subjects: []string{"wheel", "std"}, workloads: []string{"GC"}, pending: []int{5, 1000}, procs: []int{1},
		count: 3, time: time.Second, limit: time.Minute, output: "x",
		command: "go -C benchmarks run ./cmd/compare -quick -impl wheel, STD,wheel -workload gc -pending 5,1k -procs 1 -count 3 -time 1s -limit 1m",
	}, some)
}

func TestBadOptionsAreRefused(t *testing.T) {
	t.Parallel()
	cores := strconv.Itoa(runtime.NumCPU())
	for _, tt := range []struct {
		args []string
		want []string // substrings of the message: the value, the option, what is accepted
	}{
		{[]string{"-impl", "std,heap"}, []string{`"heap"`, "-impl", "one of std, wheel, wheel-100ms, timeouts, manual, gozero, gozero-100ms, gost, siddontang, siddontang-100ms, russellluo, russellluo-100ms, antlabs, rfyiamcool, rfyiamcool-100ms, ouqiang"}},
		{[]string{"-impl", ""}, []string{`""`, "-impl", "one of std, wheel"}},
		{[]string{"-workload", "Sleep"}, []string{`"Sleep"`, "-workload", "one of ArmStop, Postpone"}},
		{[]string{"-pending", "1k,many"}, []string{`"many"`, "-pending", "a number from 1 to 100M, such as 500, 10k or 1M"}},
		{[]string{"-pending", "0"}, []string{`"0"`, "-pending", "from 1 to 100M"}},
		{[]string{"-pending", "101M"}, []string{`"101M"`, "-pending", "from 1 to 100M"}},
		{[]string{"-procs", "0"}, []string{`"0"`, "-procs", "a whole number from 1 to " + cores}},
		{[]string{"-procs", "1000000"}, []string{`"1000000"`, "-procs", "from 1 to " + cores}},
		{[]string{"-count", "0"}, []string{`"0"`, "-count", "a whole number from 1 to 100"}},
		{[]string{"-count", "six"}, []string{`"six"`, "-count", "from 1 to 100"}},
		{[]string{"-time", "1"}, []string{`"1"`, "-time", "a duration from 1ms to 1m0s"}},
		{[]string{"-time", "2h"}, []string{`"2h"`, "-time", "from 1ms to 1m0s"}},
		{[]string{"-limit", "-5s"}, []string{`"-5s"`, "-limit", "a duration from 100ms to 1h0m0s"}},
		{[]string{"-o", ""}, []string{"-o", "must name a file"}},
		{[]string{"-o"}, []string{"-o", "needs an argument"}},
		{[]string{"-quick=perhaps"}, []string{"perhaps", "-quick"}},
		{[]string{"-fast"}, []string{"-fast", "not defined"}},
		{[]string{"fast"}, []string{`"fast"`, "the program takes only options"}},
	} {
		code, stdout, stderr := runCompare(t, tt.args...)
		assert.Equal(t, exitUsage, code, "%v", tt.args)
		assert.Empty(t, stdout, "%v", tt.args)
		for _, w := range tt.want {
			assert.Contains(t, stderr, w, "%v", tt.args)
		}
	}
}

func TestHelpNamesEveryOption(t *testing.T) {
	t.Parallel()
	code, stdout, stderr := runCompare(t, "-help")
	assert.Equal(t, exitOK, code)
	assert.Empty(t, stderr)
	for _, f := range options(&config{}) {
		assert.Contains(t, stdout, "-"+f.Names()[0]+" ")
	}
}

func TestListNamesEveryImplementationAndWorkload(t *testing.T) {
	t.Parallel()
	code, stdout, stderr := runCompare(t, "-list")
	assert.Equal(t, exitOK, code)
	assert.Empty(t, stderr)
	for _, name := range append(subjectNames(), workloadNames()...) {
		assert.Contains(t, stdout, " "+name+" ")
	}
	assert.Contains(t, stdout, "in each of 6 runs")
}

func TestProcessors(t *testing.T) {
	t.Parallel()
	for all, want := range map[int][]int{1: {1}, 2: {1, 2}, 3: {1, 2, 3}, 6: {1, 2, 4, 6}, 8: {1, 2, 4, 8}} {
		assert.Equal(t, want, processors(all))
	}
}
