{
  description = "Run LLM agents that are directories of commands";

  inputs.nixpkgs.url = "nixpkgs/nixos-unstable";

  outputs = { self, nixpkgs }:
    let
      systems = [ "x86_64-linux" "aarch64-linux" ];
      each = make: nixpkgs.lib.genAttrs systems (system: make nixpkgs.legacyPackages.${system});
    in
    {
      packages = each (pkgs: {
        default = pkgs.rustPlatform.buildRustPackage {
          pname = "delta-engine";
          version = (nixpkgs.lib.importTOML ./Cargo.toml).package.version;
          src = self;
          cargoLock.lockFile = ./Cargo.lock;
          # The tests need many programs, and directories that the build's sandbox lacks.
          doCheck = false;
          # The programs are in place by then; this adds the manual, completions and examples.
          postInstall = ''
            packaging/licenses.sh "$out/bin/THIRD-PARTY"
            packaging/files.sh install "$out/bin" "" "$out" delta
            rm "$out/bin/THIRD-PARTY"
          '';
          meta = {
            longDescription = "git 2.41 or later in PATH keeps the files of each step, for delta undo.";
            license = nixpkgs.lib.licenses.mit;
            mainProgram = "delta";
            platforms = systems;
          };
        };
      });
    };
}
