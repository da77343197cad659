# How tests, fuzzers and benchmarks are built and run. Included by the top Makefile.
#
# Three floors: unit tests over buffers run anywhere; tests of the kvm floor boot tiny guests on
# any /dev/kvm; tests of the lab floor boot stock kernels. tests/run runs and adds up.

programs = $(patsubst tests/$(1)/%.c,$(BUILD)/tests/$(1)/%,$(wildcard tests/$(1)/*.c))

# No test links an object of tools/: what is in there is tested through the command.
# Unit tests that are programs of their own: what they are linked with would disturb the others.
UNIT_APART := $(patsubst %,$(BUILD)/tests/unit/%,faults progress eh_frame_libdw)
# All others are one program, so that little is linked.
UNIT_OBJECTS := $(patsubst $(BUILD)/tests/%,$(BUILD)/obj/tests/%.o,$(filter-out $(UNIT_APART),$(call programs,unit)))
UNIT_TESTS := $(BUILD)/tests/unit-tests $(UNIT_APART)
KVM_TESTS := $(call programs,kvm)
BENCHES := $(call programs,bench)
UNIT_SCRIPTS := $(wildcard tests/run-selftest.sh tests/unit/*.sh) tests/pages/pages.sh
# What the scripts of tests/pages run.
PAGES_PROGRAMS := $(call programs,pages)
KVM_SCRIPTS := $(wildcard tests/kvm/*.sh)
LAB_SCRIPTS := $(wildcard tests/lab/*.sh)
# What the scripts of the lab floor run, on the host and inside.
LAB_PROGRAMS := $(call programs,lab)

# What the fault injection stands between the library and the C library for.
WRAPPED_faults := calloc mmap mlock timer_create timer_settime sigaction syscall fcntl ioctl \
	write ftruncate eventfd pthread_create

WRAPPED_progress := clock_gettime

# libdw is the truth about .eh_frame.
LIBS_eh_frame_libdw := -ldw

$(BUILD)/tests/unit-tests: $(UNIT_OBJECTS) $(BUILD)/libguestprof.a
	$(call say,LINK,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(SANITIZE) $(LDFLAGS) -o $@ $^ -lcriterion -lm $(LIBS)

# Those apart; and any other file alone, for a debugger.
$(BUILD)/tests/unit/%: $(BUILD)/obj/tests/unit/%.o $(BUILD)/libguestprof.a
	$(call say,LINK,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(SANITIZE) $(LDFLAGS) $(WRAPPED_$*:%=-Wl,--wrap=%) -o $@ $^ -lcriterion -lm $(LIBS) $(LIBS_$*)

$(BUILD)/tests/kvm/%: $(BUILD)/obj/tests/kvm/%.o $(BUILD)/libguestprof.a
	$(call say,LINK,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(SANITIZE) $(LDFLAGS) -o $@ $^ -lcriterion -lm $(LIBS)

# Programs of their own: Criterion does not start under ThreadSanitizer.
$(BUILD)/tests/%: $(BUILD)/obj/tests/%.o $(BUILD)/libguestprof.a
	$(call say,LINK,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(SANITIZE) $(LDFLAGS) -o $@ $^ $(LIBS)
.PRECIOUS: $(BUILD)/obj/tests/%.o

# Measures between a vCPU's KVM_RUNs.
$(BUILD)/tests/bench/kick: LDFLAGS += -Wl,--wrap=ioctl
# Gives guests memory of another kind.
$(BUILD)/tests/bench/attach: LDFLAGS += -Wl,--wrap=mmap

# The tiny guests of the kvm floor: one program, built once for each addressing mode. Always by gcc:
# its -O0 gives every function a frame, leaves included, which -O1 with frame pointers does not.
GUEST_CC ?= gcc
GUEST_CFLAGS := -std=gnu17 -Wall -Wextra -Werror -ffreestanding -fno-pic -fno-pie -O0 -g \
	-fno-omit-frame-pointer -fno-stack-protector \
	-fno-asynchronous-unwind-tables -fcf-protection=none -mgeneral-regs-only -mno-red-zone
GUEST_SOURCES := tests/guests/entry.S $(wildcard tests/guests/*.c)
GUEST_MODES := long5 long4 pae paged32 flat32
GUEST_FLAGS_long5 := -DGUEST_LEVELS=5 -m64
GUEST_FLAGS_long4 := -DGUEST_LEVELS=4 -m64
GUEST_FLAGS_pae := -DGUEST_LEVELS=3 -m32
GUEST_FLAGS_paged32 := -DGUEST_LEVELS=2 -m32
GUEST_FLAGS_flat32 := -DGUEST_LEVELS=0 -m32
GUESTS := $(GUEST_MODES:%=$(BUILD)/tests/guests/%)
$(GUESTS): $(BUILD)/tests/guests/%: $(GUEST_SOURCES) tests/guests/guest.h tests/guests/guest.ld tests/tests.mk
	$(call say,GUEST,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(GUEST_CC) -I. $(GUEST_CFLAGS) $(GUEST_FLAGS_$*) -nostdlib -static -no-pie \
		-Wl,-T,tests/guests/guest.ld -Wl,--build-id=none -Wl,-z,noexecstack \
		-Wl,-z,max-page-size=4096 -o $@ $(GUEST_SOURCES)

.PHONY: unit-tests kvm-tests thread-tests benches lab-programs
unit-tests: $(UNIT_TESTS) $(PAGES_PROGRAMS)
kvm-tests: $(KVM_TESTS) $(GUESTS)
thread-tests: $(call programs,thread)
benches: $(BENCHES) $(GUESTS) $(PAGES_PROGRAMS)
lab-programs: $(LAB_PROGRAMS)

# The same unit tests again with the sanitizers; the two variants have objects of their own.
# tests/unit/threads.sh runs those under ThreadSanitizer, which Criterion does not start with.
SANITIZED_TESTS := $(patsubst $(BUILD)/%,$(BUILD)/address/%,$(UNIT_TESTS))
.PHONY: sanitized-tests
sanitized-tests:
	@$(MAKE) --no-print-directory SAN=address BUILD=$(BUILD)/address unit-tests
	@$(MAKE) --no-print-directory SAN=thread BUILD=$(BUILD)/thread thread-tests

# Stock kernels for the lab floor and the demo's initramfs.
KERNELS := linux-image-amd64 linux-image-cloud-amd64 linux-image-6.12-amd64 \
	linux-image-6.12-cloud-amd64
.PHONY: kernels
kernels: $(BUILD)/guestprof
	@for kernel in $(KERNELS); do \
		$(BUILD)/guestprof lab --fetch $$kernel $(BUILD)/kernels/$$kernel || exit 1; done

# Memory images of stock kernels that tests of the unit floor look into; half a minute each, once.
# Without them those tests are skipped and say so.
IMAGES := 6.1 6.1-pti-tasks 6.12-tasks 7.3-cloud-tasks
.PHONY: images $(IMAGES:%=image-%)
images: $(IMAGES:%=image-%)
$(IMAGES:%=image-%): image-%: $(BUILD)/guestprof
	@tests/images/make-image.sh --missing $* || \
		echo "make: no memory image $* can be had here: tests that need it are skipped" >&2

# Of the same kernel, which is downloaded once.
image-6.1-pti-tasks: | image-6.1

# SUM=FILE: the closing line goes there, too.
SUM ?=
RUN = tests/run --guestprof $(BUILD)/guestprof $(SUM:%=--sum %)

# What a person asks for is built on all CPUs, unless the command line says how many jobs there are to be.
ALL_CPUS = $(if $(filter -j% --jobserver%,$(MAKEFLAGS)),,-j$(shell nproc 2>/dev/null || echo 1))
BUILD_ALL = $(MAKE) --no-print-directory $(ALL_CPUS)

# Every unit test once. tests/unit/threads.sh needs the build for ThreadSanitizer.
PLAIN_UNIT := $(UNIT_TESTS) $(filter-out tests/unit/threads.sh,$(UNIT_SCRIPTS))
# Of the tiny guests, what takes little time for what it shows; of the stock kernels, one.
QUICK_KVM := $(patsubst %,$(BUILD)/tests/kvm/%,attach ends hostile kick machine_api run_page sampling sessions ticks) \
	tests/kvm/annotate.sh tests/kvm/example.sh tests/kvm/record.sh
QUICK_LAB := tests/lab/quick.sh

.PHONY: test test-rest test-all test-unit test-unit-plain test-kvm test-lab
test:
	@printf '%s\n' 'make test: about 6 minutes on two CPUs, and what is downloaded the first time' \
		'  unit  every unit test once ($(words $(UNIT_OBJECTS)) files, $(words $(PLAIN_UNIT)) programs), with memory images of stock kernels' \
		'  kvm   tiny guests on /dev/kvm ($(words $(QUICK_KVM)) programs)' \
		'  lab   one stock kernel: booted, sampled, reported, attached to' \
		'make test-all adds sanitizers, the other tiny guests and five more kernels'
	$(call packages,build test lab)
	@$(BUILD_ALL) all unit-tests kvm-tests lab-programs
	@$(BUILD_ALL) images
	@$(RUN) --unit $(PLAIN_UNIT) --kvm $(QUICK_KVM) --lab $(QUICK_LAB)

# What `make test` leaves out.
test-rest:
	@printf '%s\n' 'make test-rest: what make test leaves out' \
		'  unit  every unit test with AddressSanitizer and UBSan, threads with ThreadSanitizer' \
		'  kvm   the other tiny guests' '  lab   six stock kernels'
	$(call packages,build test lab)
	@$(BUILD_ALL) all kvm-tests lab-programs sanitized-tests kernels
	@$(BUILD_ALL) images
	@$(RUN) --unit $(SANITIZED_TESTS) tests/unit/threads.sh \
		--kvm $(filter-out $(QUICK_KVM),$(KVM_TESTS) $(KVM_SCRIPTS)) --lab $(filter-out $(QUICK_LAB),$(LAB_SCRIPTS))
test-all:
	+@.ci/run

test-unit:
	$(call packages,build test)
	@$(BUILD_ALL) all unit-tests sanitized-tests
	@$(RUN) --unit $(UNIT_TESTS) $(UNIT_SCRIPTS) $(SANITIZED_TESTS)
test-unit-plain:
	$(call packages,build test)
	@$(BUILD_ALL) all unit-tests
	@$(RUN) --unit $(PLAIN_UNIT)
test-kvm:
	$(call packages,build test lab)
	@$(BUILD_ALL) all kvm-tests
	@$(RUN) --kvm $(KVM_TESTS) $(KVM_SCRIPTS)
test-lab:
	$(call packages,build test lab)
	@$(BUILD_ALL) all lab-programs kernels
	@$(RUN) --lab $(LAB_SCRIPTS)

# The pages alone, with what they need installed first. PAGES_TRACE=FILE also takes pictures of a trace.
.PHONY: test-pages
test-pages:
	$(call packages,build test pages)
	@$(MAKE) --no-print-directory all $(PAGES_PROGRAMS)
	@$(RUN) --unit tests/pages/pages.sh

# Measurements print ratios; they fail nothing.
.PHONY: bench
bench:
	$(call packages,build lab)
	@$(MAKE) --no-print-directory $(ALL_CPUS) all benches kernels
	@tests/bench/run $(BUILD)/guestprof $(BENCHES) $(wildcard tests/bench/*.sh)

# Fuzzers: libFuzzer, each for FUZZ_SECONDS, on a copy of its seeds. A variant of its own.
FUZZ_SECONDS ?= 60
FUZZERS := $(call programs,fuzz)
$(BUILD)/tests/fuzz/%: $(BUILD)/obj/tests/fuzz/%.o $(BUILD)/libguestprof.a
	$(call say,FUZZER,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(SANITIZE) -fsanitize=fuzzer $(LDFLAGS) -o $@ $^ $(LIBS)

.PHONY: fuzz fuzzers run-fuzzers
fuzzers: $(FUZZERS)
fuzz:
	$(call packages,build fuzz)
	@$(MAKE) --no-print-directory CC=clang SAN=fuzz BUILD=build/fuzz run-fuzzers
run-fuzzers: fuzzers
	@for fuzzer in $(FUZZERS); do \
		name=$${fuzzer##*/fuzz_}; found=$(BUILD)/corpus/$$name; seeds=tests/fuzz/corpus/$$name; \
		mkdir -p $$found; [ -d $$seeds ] || seeds=; echo "== $$name"; \
		$$fuzzer -max_total_time=$(FUZZ_SECONDS) -verbosity=0 -print_final_stats=1 \
			-artifact_prefix=$(BUILD)/$$name- $$found $$seeds || exit 1; \
	done
