// RUN: %exla-opt %s --passes=tensor-splitter --size-threshold=8KB --split-size=4KB | filecheck %s

// What the factor is multiplied with is made in slices; the solve behind it, in which every slice would read all of the
// factor in another order, is made once, over the product.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK: %[[LOOP:.*]]:2 = stablehlo.while
// CHECK: stablehlo.convert {{.*}} -> tensor<64x8xf32>
// CHECK: stablehlo.dot_general {{.*}} -> tensor<64x8xf32>
// CHECK-NOT: custom_call
// CHECK: return
// CHECK: stablehlo.custom_call @lapack_strsm_ffi(%arg0, %[[LOOP]]#1)

func.func @main(%l: tensor<64x64xf32>, %b: tensor<64xf64>, %c: tensor<64xf64>) -> tensor<64x64xf32> {
  %0 = stablehlo.broadcast_in_dim %b, dims = [0] : (tensor<64xf64>) -> tensor<64x64xf64>
  %1 = stablehlo.broadcast_in_dim %c, dims = [1] : (tensor<64xf64>) -> tensor<64x64xf64>
  %2 = stablehlo.add %0, %1 : tensor<64x64xf64>
  %3 = stablehlo.convert %2 : (tensor<64x64xf64>) -> tensor<64x64xf32>
  %4 = stablehlo.dot_general %l, %3, contracting_dims = [0] x [0] : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  %5 = stablehlo.custom_call @lapack_strsm_ffi(%l, %4) {mhlo.backend_config = {diag = 85 : ui8, side = 76 : ui8, trans_x = 78 : ui8, uplo = 76 : ui8}, operand_layouts = [dense<[0, 1]> : tensor<2xindex>, dense<[0, 1]> : tensor<2xindex>], output_operand_aliases = [#stablehlo.output_operand_alias<output_tuple_indices = [], operand_index = 1, operand_tuple_indices = []>], result_layouts = [dense<[0, 1]> : tensor<2xindex>]} : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  return %5 : tensor<64x64xf32>
}
