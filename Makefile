# guestprof: a profiler for whole guest operating systems, from outside.
#
#   make                 build/guestprof, build/libguestprof.a, build/libguestprof.so
#   make demo            boot a stock Debian kernel, sample it, show where the time went
#   make test            every unit test, tiny guests, one stock kernel; one closing line adds them up
#   make help            the other targets and the variables

VERSION := 0.1.0

CC ?= gcc
ifeq ($(origin CC),default)
CC := gcc
endif
AR ?= ar
PKG_CONFIG ?= pkg-config
PREFIX ?= /usr/local
LIBDIR ?= $(PREFIX)/lib
ZSH_FUNCTIONS ?= $(PREFIX)/share/zsh/site-functions
DESTDIR ?=
# Empty for packages, which are built by compilers that did not exist when this was written.
WERROR ?= -Werror
V ?= 0
DEBUG ?= 0
SAN ?=

ifneq ($(V),1)
Q := @
say = @printf '  %-7s %s\n' $(1) $(2)
endif

# Each variant keeps its own objects, so that switching does not rebuild everything.
VARIANT := $(strip $(if $(filter-out gcc,$(CC)),$(notdir $(CC))) $(if $(filter 1,$(DEBUG)),debug) $(SAN))
EMPTY :=
BUILD ?= build$(if $(VARIANT),/$(subst $(EMPTY) $(EMPTY),-,$(VARIANT)))

PACKAGES := libelf libseccomp zlib
# Loaded by the commands that need them, not linked: their headers are needed here.
LOADED_PACKAGES := ncursesw capstone libdw
# The same, and optional: what needs it is left out where its headers are not. LIBVIRT=0 and DISK_FILES=0
# leave it out.
LIBVIRT ?= $(shell $(PKG_CONFIG) --exists libvirt 2>/dev/null && echo 1 || echo 0)
DISK_FILES ?= $(shell $(PKG_CONFIG) --exists ext2fs blkid 2>/dev/null && echo 1 || echo 0)
OPTIONAL_CFLAGS = $(eval OPTIONAL_CFLAGS := \
	$$(if $$(filter 1,$$(LIBVIRT)),-DGUESTPROF_LIBVIRT $$(shell $(PKG_CONFIG) --cflags libvirt)) \
	$$(if $$(filter 1,$$(DISK_FILES)),-DGUESTPROF_DISK_FILES $$(shell $(PKG_CONFIG) --cflags ext2fs blkid)))$(OPTIONAL_CFLAGS)
# Asked once, when the first recipe needs it: by then the packages may have been installed.
PACKAGE_CFLAGS = $(eval PACKAGE_CFLAGS := $$(shell $(PKG_CONFIG) --cflags $(PACKAGES) $(LOADED_PACKAGES) 2>/dev/null))$(PACKAGE_CFLAGS)
PACKAGE_LIBS = $(eval PACKAGE_LIBS := $$(shell $(PKG_CONFIG) --libs $(PACKAGES) 2>/dev/null))$(PACKAGE_LIBS)

# Sanitizers take twice as long to compile with -O2 -g, and -g1 has the lines that their reports need.
CFLAGS ?= $(if $(filter 1,$(DEBUG)),-Og -g,$(if $(filter address thread,$(SAN)),-O1 -g1,-O2 -g))
WARNINGS := -Wall -Wextra $(WERROR) -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla \
	-Wpointer-arith -Wundef -Wwrite-strings
# Frame pointers so that guestprof itself can be profiled.
BASE_CFLAGS = -std=gnu17 $(WARNINGS) -D_GNU_SOURCE -DGUESTPROF_VERSION='"$(VERSION)"' \
	-fPIC -fvisibility=hidden -fno-omit-frame-pointer -fstack-protector-strong \
	-pthread $(PACKAGE_CFLAGS) $(OPTIONAL_CFLAGS)
LIBS = $(PACKAGE_LIBS) -pthread -lm
# What gcc knows of initialized variables is less with sanitizers: this warning is often wrong then.
GUESSES := $(if $(findstring clang,$(CC)),,-Wno-maybe-uninitialized)
ifeq ($(SAN),address)
SANITIZE := -fsanitize=address,undefined -fno-sanitize-recover=undefined $(GUESSES)
else ifeq ($(SAN),thread)
SANITIZE := -fsanitize=thread $(GUESSES)
else ifeq ($(SAN),fuzz)
SANITIZE := -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined
else ifneq ($(SAN),)
$(error SAN=$(SAN) is not known; it can be address or thread)
endif

# The house: docs/architecture.md draws it. A room sees only the rooms named here: its include path
# holds nothing else, so that an upward include does not compile.
GI := guest-introspection
READS_GUESTS := base $(GI)/x86 $(GI)/elf $(GI)/unwind $(GI)/linux
MACHINE := base $(GI)/x86 sampler kvm
ROOMS := base $(GI)/x86 $(GI)/elf $(GI)/unwind $(GI)/linux fxt sampler naming recording trace analysis \
	export kvm vmm/devices vmm/boot vmm attach tools
SEES_base :=
SEES_$(GI)/x86 := base
SEES_$(GI)/elf := base $(GI)/x86
SEES_$(GI)/unwind := base $(GI)/x86 $(GI)/elf
SEES_$(GI)/linux := base $(GI)/x86 $(GI)/elf $(GI)/unwind
SEES_fxt := base
SEES_sampler := $(READS_GUESTS) fxt
SEES_naming := $(READS_GUESTS) fxt
SEES_recording := $(READS_GUESTS) fxt sampler naming
SEES_trace := base fxt
SEES_analysis := base fxt trace
SEES_export := base fxt trace analysis
SEES_kvm := base $(GI)/x86
SEES_vmm/devices := base $(GI)/x86 kvm
SEES_vmm/boot := base $(GI)/x86 kvm vmm/devices
SEES_vmm := base $(GI)/x86 sampler kvm vmm/devices vmm/boot
SEES_attach := $(READS_GUESTS) sampler kvm
SEES_tools := $(filter-out tools,$(ROOMS))
SEES_tests := $(ROOMS) tests

LIBRARY_ROOMS := $(filter-out tools,$(ROOMS))
sources = $(sort $(wildcard $(1)/*.c $(if $(filter tools,$(1)),tools/*/*.c)))
objects = $(patsubst %.c,$(BUILD)/obj/%.o,$(call sources,$(1)))
archive = $(BUILD)/lib/lib$(subst /,-,$(1)).a
LIBRARY_OBJECTS := $(foreach room,$(LIBRARY_ROOMS),$(call objects,$(room)))
TOOL_OBJECTS := $(call objects,tools)

.PHONY: all
all: $(BUILD)/guestprof $(BUILD)/libguestprof.a $(BUILD)/libguestprof.so

# One include directory per room: links to itself and to what it may see.
define room_rules
$(BUILD)/include/$(subst /,-,$(1))/.made: Makefile
	$$(Q)rm -rf $$(@D) && mkdir -p $$(@D)
	$$(Q)for seen in $(sort $(1) $(SEES_$(1))); do mkdir -p "$$(@D)/$$$$(dirname $$$$seen)"; \
		[ -e "$$(@D)/$$$$seen" ] || ln -s "$(CURDIR)/$$$$seen" "$$(@D)/$$$$seen"; done; \
		ln -s "$(CURDIR)/include/guestprof" "$$(@D)/guestprof"
	$$(Q)touch $$@

$(BUILD)/obj/$(1)/%.o: $(1)/%.c $(BUILD)/include/$(subst /,-,$(1))/.made $(BUILD)/flags
	$$(call say,CC,$$<)
	$$(Q)mkdir -p $$(@D)
	$$(Q)$(CC) $(BASE_CFLAGS) $(CPPFLAGS) $(CFLAGS) $(SANITIZE) -I$(BUILD)/include/$(subst /,-,$(1)) -MMD -MP -c $$< -o $$@

$(call archive,$(1)): $(call objects,$(1))
	$$(call say,AR,$$@)
	$$(Q)mkdir -p $$(@D)
	$$(Q)rm -f $$@ && $(AR) rcs $$@ $$^
endef
$(foreach room,$(ROOMS) tests,$(eval $(call room_rules,$(room))))

# The HTML pages' parts, which the assembler takes in.
$(BUILD)/obj/tools/page/assets.o: $(wildcard tools/page/*.html tools/page/*.css tools/page/*.js)
# The lab's scripts, likewise.
$(BUILD)/obj/tools/lab/scripts.o: $(wildcard tools/lab/*.sh)

# Changes when the compiler or a flag does; everything is then rebuilt. All that is compiled comes
# past here, so this is where to tell what building needs and this machine lacks.
$(BUILD)/flags: FORCE
	@lacking=; for program in $(firstword $(CC)) $(AR) $(PKG_CONFIG); do \
		command -v $$program >/dev/null || lacking="$$lacking $$program"; done; \
	for package in $(PACKAGES) $(LOADED_PACKAGES); do \
		$(PKG_CONFIG) --exists $$package 2>/dev/null || lacking="$$lacking $$package"; done; \
	[ -z "$$lacking" ] || { echo "not installed here, or not found:$$lacking" >&2; \
		echo "make install-packages installs all that is needed, or prints the line to run" >&2; exit 1; }
	@mkdir -p $(@D)
	@printf '%s\n' '$(CC) $(subst ','\'',$(BASE_CFLAGS)) $(CPPFLAGS) $(CFLAGS) $(SANITIZE) $(LIBS)' >$@.new
	@cmp -s $@.new $@ && rm $@.new || mv $@.new $@
.PHONY: FORCE
FORCE:

$(BUILD)/libguestprof.a: $(LIBRARY_OBJECTS)
	$(call say,AR,$@)
	$(Q)rm -f $@ && $(AR) rcs $@ $^

$(BUILD)/libguestprof.so: $(LIBRARY_OBJECTS)
	$(call say,LINK,$@)
	$(Q)$(CC) -shared -Wl,-soname,libguestprof.so.0 $(SANITIZE) $(LDFLAGS) -o $@ $^ $(LIBS)

$(BUILD)/guestprof: $(TOOL_OBJECTS) $(foreach room,$(LIBRARY_ROOMS),$(call archive,$(room)))
	$(call say,LINK,$@)
	$(Q)$(CC) $(SANITIZE) $(LDFLAGS) -o $@ $(TOOL_OBJECTS) \
		-Wl,--start-group $(foreach room,$(LIBRARY_ROOMS),$(call archive,$(room))) -Wl,--end-group $(LIBS)

# The object trees' own dependencies.
-include $(shell [ -d $(BUILD)/obj ] && find $(BUILD)/obj -name '*.d')

include tests/tests.mk

# Set-up on a fresh machine, by groups of packages. Exit code 3: not a Debian system, go on.
packages = @setup/packages.sh $(1) || [ $$? = 3 ]
.PHONY: install-packages
install-packages:
	@setup/packages.sh build test lab lint fuzz

.PHONY: demo
demo:
	$(call packages,build lab)
	@$(MAKE) --no-print-directory $(ALL_CPUS) $(BUILD)/guestprof
	@demo/run.sh $(BUILD)/guestprof

# Installation: PREFIX, LIBDIR and ZSH_FUNCTIONS are where it will be, DESTDIR is put in front for packagers.
INSTALL_BIN := $(DESTDIR)$(PREFIX)/bin
INSTALL_LIB := $(DESTDIR)$(LIBDIR)
INSTALL_INCLUDE := $(DESTDIR)$(PREFIX)/include/guestprof
INSTALL_MAN := $(DESTDIR)$(PREFIX)/share/man/man1
BASH_COMPLETION := $(DESTDIR)$(PREFIX)/share/bash-completion/completions
ZSH_COMPLETION := $(DESTDIR)$(ZSH_FUNCTIONS)
HEADERS := $(wildcard include/guestprof/*.h)
MAN_PAGES := $(wildcard docs/man/*.1)

# --static links our archive and the packages' shared libraries: with Requires.private pkg-config would
# ask for the archives of all that those were built with.
$(BUILD)/guestprof.pc: Makefile FORCE
	@mkdir -p $(@D)
	@printf '%s\n' 'prefix=$(PREFIX)' 'libdir=$(patsubst $(PREFIX)/%,$${prefix}/%,$(LIBDIR))' \
		'includedir=$${prefix}/include' '' \
		'Name: guestprof' 'Description: profiler for whole guest operating systems' \
		'Version: $(VERSION)' 'Libs: -L$${libdir} -lguestprof' \
		'Libs.private: $(PACKAGE_LIBS) -pthread -lm' \
		'Cflags: -I$${includedir}' >$@

.PHONY: install
install: all $(BUILD)/guestprof.pc
	install -d $(INSTALL_BIN) $(INSTALL_LIB)/pkgconfig $(INSTALL_INCLUDE) $(INSTALL_MAN) \
		$(BASH_COMPLETION) $(ZSH_COMPLETION)
	install -m 755 $(BUILD)/guestprof $(INSTALL_BIN)/guestprof
	install -m 644 $(BUILD)/libguestprof.a $(INSTALL_LIB)/libguestprof.a
	install -m 755 $(BUILD)/libguestprof.so $(INSTALL_LIB)/libguestprof.so.$(VERSION)
	ln -sfn libguestprof.so.$(VERSION) $(INSTALL_LIB)/libguestprof.so.0
	ln -sfn libguestprof.so.0 $(INSTALL_LIB)/libguestprof.so
	install -m 644 $(BUILD)/guestprof.pc $(INSTALL_LIB)/pkgconfig/guestprof.pc
	install -m 644 $(HEADERS) $(INSTALL_INCLUDE)
	install -m 644 $(MAN_PAGES) $(INSTALL_MAN)
	install -m 644 completion/guestprof.bash $(BASH_COMPLETION)/guestprof
	install -m 644 completion/_guestprof $(ZSH_COMPLETION)/_guestprof

.PHONY: uninstall
uninstall:
	rm -f $(INSTALL_BIN)/guestprof $(INSTALL_LIB)/libguestprof.a $(INSTALL_LIB)/libguestprof.so \
		$(INSTALL_LIB)/libguestprof.so.0 $(INSTALL_LIB)/libguestprof.so.$(VERSION) \
		$(INSTALL_LIB)/pkgconfig/guestprof.pc $(addprefix $(INSTALL_MAN)/,$(notdir $(MAN_PAGES))) \
		$(BASH_COMPLETION)/guestprof $(ZSH_COMPLETION)/_guestprof
	rm -rf $(INSTALL_INCLUDE)

# Debian packages, in build/deb/.
.PHONY: deb
deb:
	$(call packages,build deb)
	@setup/make-deb.sh build/deb

# lintian, and an installation in a clean Debian system. Elsewhere the scripts say that there are no packages.
PACKAGE_SCRIPTS := $(wildcard tests/package/*.sh)
.PHONY: test-package
test-package:
	$(call packages,build deb)
	@! command -v dpkg-buildpackage >/dev/null || setup/make-deb.sh build/deb
	@$(RUN) --unit $(PACKAGE_SCRIPTS)

C_FILES := $(foreach folder,$(ROOMS) tests demo docs,$(wildcard $(folder)/*.[ch])) $(wildcard tools/*/*.[ch] tests/*/*.[ch] docs/*/*.[ch]) \
	$(HEADERS)
SHELL_FILES := $(wildcard docs/pictures/*.sh setup/*.sh demo/*.sh tools/lab/*.sh tests/*.sh tests/*/*.sh tests/*/*/*.sh) tests/run tests/bench/run .ci/run \
	debian/tests/boot-and-sample debian/tests/example

.PHONY: format
format:
	$(call packages,lint)
	@clang-format -i $(C_FILES)

.PHONY: lint
lint:
	$(call packages,build lint)
	@$(MAKE) --no-print-directory $(ALL_CPUS) all
	@clang-format --dry-run -Werror $(C_FILES)
	@shellcheck -x -S warning $(SHELL_FILES) completion/guestprof.bash
	@mandoc -Tlint -Wwarning $(MAN_PAGES)
	@printf '%s\n' $(foreach room,$(ROOMS),'$(room): $(SEES_$(room))') | \
		tests/lint/house.sh tests/lint/house.known $(patsubst %.o,%.d,$(LIBRARY_OBJECTS) $(TOOL_OBJECTS))
	@tests/lint/release.sh $(VERSION) $(BUILD)/libguestprof.so

.PHONY: help
help:
	@printf '%s\n' \
		'make            the command and the libraries, in $(BUILD)/' \
		'make demo       boot a stock Debian kernel, sample it, show where the time went' \
		'make test       every unit test, tiny guests, one stock kernel: about 6 minutes' \
		'make test-all   also sanitizers, the other tiny guests, all stock kernels, packages: about 20' \
		'make test-unit  tests over buffers; test-kvm: tiny guests; test-lab: stock kernels' \
		'make test-pages the HTML pages in headless Chromium' \
		'make bench      measurements, as ratios within one run' \
		'make fuzz       every fuzzer for FUZZ_SECONDS=60' \
		'make deb        Debian packages, in build/deb/; test-package: installed in a clean system' \
		'make format lint install uninstall clean' \
		'' \
		'V=1 shows commands; DEBUG=1; SAN=address or thread; CC=clang; LIBVIRT=0; DISK_FILES=0; PREFIX=/usr/local; LIBDIR=; DESTDIR='

.PHONY: clean
clean:
	rm -rf build
