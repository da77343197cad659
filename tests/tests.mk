# How tests, fuzzers and benchmarks are built and run. Included by the top Makefile.

UNIT_TESTS := $(patsubst tests/unit/%.c,$(BUILD)/tests/unit/%,$(wildcard tests/unit/*.c))

$(BUILD)/tests/%: $(BUILD)/obj/tests/%.o $(BUILD)/libguestprof.a
	$(call say,LINK,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(SANITIZE) $(LDFLAGS) -o $@ $^ -lcriterion $(LIBS)
.PRECIOUS: $(BUILD)/obj/tests/%.o

.PHONY: test-unit
test-unit: $(UNIT_TESTS)
	$(Q)for test in $^; do $$test || exit 1; done
