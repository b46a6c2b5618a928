//! The part of `protoc` that prost-build calls: compiles protocol files into a descriptor set.

use std::error::Error;
use std::fs;
use std::path::PathBuf;

use protox::Compiler;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let (mut includes, mut files, mut output) = (Vec::new(), Vec::new(), None);
    let (mut imports, mut source_info) = (false, false);
    while let Some(argument) = arguments.next() {
        match argument.to_str() {
            Some("--include_imports") => imports = true,
            Some("--include_source_info") => source_info = true,
            Some("-o") => output = arguments.next().map(PathBuf::from),
            Some("-I") => includes.extend(arguments.next().map(PathBuf::from)),
            Some(other) if other.starts_with('-') => {
                return Err(format!("{other} is not supported; set PROTOC to the real protoc").into());
            }
            _ => files.push(PathBuf::from(argument)),
        }
    }
    let output = output.ok_or("-o FILE is missing")?;
    let mut compiler = Compiler::new(includes)?;
    compiler.include_imports(imports).include_source_info(source_info).open_files(files)?;
    fs::write(output, compiler.encode_file_descriptor_set())?;
    Ok(())
}
